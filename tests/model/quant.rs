//! Weight types against golden blocks of the gguf reference package.

use std::path::Path;

use strata::model::quant::{GROUP, TENSOR_TYPES, TensorType, dequantize, ggml_type_name, quantize, to_i8_groups};

use super::support::data;

fn floats(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// (type, blocks, values) of every golden type.
fn golden(test: &str) -> Vec<(TensorType, Vec<u8>, Vec<f32>)> {
    let Some(dir) = data(test, "quant-golden") else { return Vec::new() };
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("manifest.json")).unwrap()).unwrap();
    let types = manifest["types"].as_array().unwrap();
    assert_eq!(types.len(), 12);
    types
        .iter()
        .map(|entry| {
            let name = entry["type"].as_str().unwrap();
            let ty = TensorType::from_name(name).unwrap();
            assert_eq!(u64::from(ty.ggml_id()), entry["ggml_type"].as_u64().unwrap(), "{name}");
            assert_eq!(ty.block_elems() as u64, entry["block_elems"].as_u64().unwrap(), "{name}");
            assert_eq!(ty.block_bytes() as u64, entry["block_bytes"].as_u64().unwrap(), "{name}");
            let blocks = std::fs::read(dir.join(format!("{name}.blocks.bin"))).unwrap();
            (ty, blocks, floats(&dir.join(format!("{name}.f32.bin"))))
        })
        .collect()
}

#[test]
fn dequantize_golden_blocks_is_bit_exact() {
    for (ty, blocks, want) in golden("dequantize_golden_blocks_is_bit_exact") {
        let mut got = vec![0f32; want.len()];
        dequantize(ty, &blocks, &mut got).unwrap();
        let wrong = got.iter().zip(&want).filter(|(g, w)| g.to_bits() != w.to_bits()).count();
        assert_eq!(wrong, 0, "{ty}");
    }
}

#[test]
fn i8_groups_of_golden_blocks_rebuild_them_bit_exact() {
    for (ty, blocks, want) in golden("i8_groups_of_golden_blocks_rebuild_them_bit_exact") {
        let n = want.len();
        let (mut q, mut scale, mut offset) = (vec![0i8; n], vec![0f32; n / GROUP], vec![0f32; n / GROUP]);
        to_i8_groups(ty, &blocks, &mut q, &mut scale, &mut offset).unwrap();
        for (i, want) in want.iter().enumerate() {
            let got = scale[i / GROUP] * f32::from(q[i]) + offset[i / GROUP];
            assert_eq!(got.to_bits(), want.to_bits(), "{ty} weight {i}");
        }
    }
}

#[test]
fn quantize_golden_source_is_bit_exact() {
    let Some(dir) = data("quantize_golden_source_is_bit_exact", "quant-golden") else { return };
    let source = floats(&dir.join("source.f32.bin"));
    for ty in [TensorType::Q4_0, TensorType::Q8_0] {
        let want = std::fs::read(dir.join(format!("{ty}.from-source.bin"))).unwrap();
        assert!(quantize(ty, &source).unwrap() == want, "{ty}");
    }
}

#[test]
fn floats_survive_quantize_and_dequantize() {
    let weights: Vec<f32> = (0..64).map(|i| (i as f32 - 31.5) * 0.25).collect();
    for ty in [TensorType::F32, TensorType::F16, TensorType::BF16] {
        let mut back = vec![0f32; weights.len()];
        dequantize(ty, &quantize(ty, &weights).unwrap(), &mut back).unwrap();
        assert_eq!(back, weights, "{ty}");
    }
}

#[test]
fn partial_blocks_are_rejected() {
    let mut out = [0f32; 32];
    assert!(dequantize(TensorType::Q4_0, &[0; 17], &mut out).is_err());
    assert!(dequantize(TensorType::Q4_K, &[0; 144], &mut out).is_err());
    assert!(quantize(TensorType::Q8_0, &[0.0; 31]).is_err());
    assert!(quantize(TensorType::Q4_K, &[0.0; 256]).is_err());
    let (mut q, mut scale, mut offset) = ([0i8; 32], [0f32; 2], [0f32; 3]);
    assert!(to_i8_groups(TensorType::Q4_0, &[0; 18], &mut q, &mut scale, &mut offset).is_err());
    assert!(to_i8_groups(TensorType::F16, &[0; 64], &mut q, &mut scale, &mut offset[..2]).is_err());
}

#[test]
fn type_numbers_and_names_lead_back_to_the_type() {
    for ty in TENSOR_TYPES {
        assert_eq!(TensorType::from_ggml_id(ty.ggml_id()), Some(ty));
        assert_eq!(TensorType::from_name(&ty.name().to_lowercase()), Some(ty));
        assert_eq!(ggml_type_name(ty.ggml_id()), ty.name());
    }
    assert_eq!(TensorType::from_ggml_id(16), None);
    assert_eq!(ggml_type_name(16), "IQ2_XXS");
    assert_eq!(ggml_type_name(4242), "number 4242");
}
