use strata::gpu::{Twins, probe};

use super::common::gpu;

#[test]
fn probe_figures_are_of_this_world() {
    let Some(gpu) = gpu("probe_figures_are_of_this_world", Twins::default()) else { return };
    let m = probe::measure(&gpu).unwrap();
    eprintln!("{m:?}");
    for rate in [m.stream_read_bytes_per_s, m.copy_bytes_per_s, m.upload_bytes_per_s, m.readback_bytes_per_s] {
        assert!((1e7..1e14).contains(&rate), "{m:?}");
    }
    assert!((1e8..1e16).contains(&m.gemm_flops), "{m:?}");
}
