use strata::base::Rng;
use strata::gpu::kernels::linear::{Embed, ROW_TILE, WeightFormat};
use strata::gpu::{Recorder, Twins};
use strata::reference;

use super::blocks::random_weights;
use super::common::{assert_close, gpu};
use super::{download_f32, random, upload};

#[test]
fn embed_slabs_together_match_reference() {
    let Some(gpu) = gpu("embed_slabs_together_match_reference", Twins::default()) else { return };
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
