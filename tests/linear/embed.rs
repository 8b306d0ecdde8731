use strata::base::Rng;
use strata::gpu::kernels::linear::{Embed, ROW_TILE, WeightFormat};
use strata::gpu::{FeatureOverrides, Recorder};
use strata::reference;

use super::blocks::random_weights;
use super::common::{assert_close, data_dir, gpu};
use super::{download_f32, random, upload};

#[test]
fn embed_slabs_together_match_reference() {
    let Some(gpu) = gpu("embed_slabs_together_match_reference", FeatureOverrides::default()) else { return };
    let mut rng = Rng::new(11);
    for format in WeightFormat::ALL {
        for (n_rows, cols) in [(70, 256), (40, 768)] {
            let w = random_weights(&mut rng, format, n_rows, cols);
            for (add, id_offset) in [(false, 0), (true, 2)] {
                let ids: Vec<u32> = [0, 5, ROW_TILE - 3, ROW_TILE, 37, 5].map(|i| i as u32).to_vec();
                let before = random(&mut rng, ids.len() * cols);
                let (ids_slice, y) = (upload(&gpu, &ids), upload(&gpu, &before));
                let op = Embed::new(&gpu, format, cols, add).unwrap();
                let mut recorder = Recorder::new();
                // Two slabs: each id is in one of them.
                let (quants_at, scales_at) = (format.quants_bytes(ROW_TILE, cols), format.scales_bytes(ROW_TILE, cols));
                for (first, n, tail) in [(0, ROW_TILE, false), (ROW_TILE, n_rows - ROW_TILE, true)] {
                    let part = |bytes: &[u8], at: u64| if tail { bytes[at as usize..].to_vec() } else { bytes.to_vec() };
                    let quants = upload(&gpu, &part(&w.quants, quants_at));
                    let scales = upload(&gpu, &part(&w.scales, if w.scales.len() > 16 { scales_at } else { 0 }));
                    let binding = op.bind(&gpu, &ids_slice, &quants, &scales, &y).unwrap();
                    op.record(&mut recorder, &binding, ids.len(), [first, n], id_offset);
                }
                gpu.submit(&mut recorder).unwrap();
                let shifted: Vec<u32> = ids.iter().map(|i| i + id_offset as u32).collect();
                let mut want = reference::embed(&shifted, &w.values, cols);
                if add {
                    want.iter_mut().zip(&before).for_each(|(w, b)| *w += b);
                }
                let got = download_f32(&gpu, &y, want.len());
                assert_close(&format!("embed {format:?} [{n_rows}, {cols}] add {add}"), &got, &want, 1e-13);
            }
        }
    }
}

/// `quant-golden`: blocks and their values from the dequantizer of the gguf package, 8 rows of 1024.
#[test]
fn embed_golden_blocks_give_golden_values() {
    let test = "embed_golden_blocks_give_golden_values";
    let Some(dir) = data_dir().map(|d| d.join("quant-golden")) else {
        eprintln!("skipped: {test}: no STRATA_DATA");
        return;
    };
    let Some(gpu) = gpu(test, FeatureOverrides::default()) else { return };
    let (rows, cols) = (8, 1024);
    for (name, format) in [
        ("Q4_0", WeightFormat::Q4_0),
        ("Q8_0", WeightFormat::Q8_0),
        ("Q4_K", WeightFormat::Q4K),
        ("Q5_K", WeightFormat::Q5K),
        ("Q6_K", WeightFormat::Q6K),
    ] {
        let blocks = std::fs::read(dir.join(format!("{name}.blocks.bin"))).unwrap();
        let values = std::fs::read(dir.join(format!("{name}.f32.bin"))).unwrap();
        let want: Vec<f32> = values.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let mut quants = vec![0; format.quants_bytes(rows, cols) as usize];
        let mut scales = vec![0; format.scales_bytes(rows, cols) as usize];
        format.repack(rows, cols, &blocks, &mut quants, &mut scales).unwrap();
        let ids: Vec<u32> = (0..rows as u32).collect();
        let (quants, scales, ids_slice) = (upload(&gpu, &quants), upload(&gpu, &scales), upload(&gpu, &ids));
        let y = upload(&gpu, &vec![0.0f32; rows * cols]);
        let op = Embed::new(&gpu, format, cols, false).unwrap();
        let binding = op.bind(&gpu, &ids_slice, &quants, &scales, &y).unwrap();
        let mut recorder = Recorder::new();
        op.record(&mut recorder, &binding, rows, [0, rows], 0);
        gpu.submit(&mut recorder).unwrap();
        assert_close(name, &download_f32(&gpu, &y, rows * cols), &want, 1e-14);
    }
}
