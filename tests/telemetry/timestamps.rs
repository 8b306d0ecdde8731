use strata::gpu::kernels::linear::bench;
use strata::gpu::{FeatureOverrides, Gpu, GpuSpan, MAX_IN_FLIGHT, MAX_PASSES, Recorder, Slice, TimestampRing};
use strata::telemetry::{EventKind, Hub, KernelFamily, NO_LAYER, now};

use crate::common::gpu;

const N: u64 = 128;

struct Work {
    buffers: [Slice; 3],
    recorder: Recorder,
}

impl Work {
    fn new(gpu: &Gpu) -> Work {
        Work { buffers: [0; 3].map(|_| gpu.buffer("test", 4 * N * N).unwrap().all()), recorder: Recorder::new() }
    }

    fn gemm(&mut self, gpu: &Gpu, family: KernelFamily, layer: u32) {
        let [a, b, c] = &self.buffers;
        self.recorder.mark(family, layer);
        bench::record_gemm(gpu, &mut self.recorder, [a, b, c], N as usize).unwrap();
    }

    fn copy(&mut self) {
        let (from, to) = (self.buffers[0].clone(), self.buffers[1].clone());
        self.recorder.copy(&from, &to);
    }
}

fn collected(gpu: &Gpu, timestamps: &mut TimestampRing) -> Vec<GpuSpan> {
    let mut spans = Vec::new();
    timestamps.collect(gpu, |span| spans.push(span));
    spans
}

/// Spans are ordered, lie within the wall time, and are not longer than it together.
fn assert_ordered_within(spans: &[GpuSpan], (began_ns, ended_ns): (u64, u64)) {
    let mut last_ns = began_ns;
    for span in spans {
        assert!(last_ns <= span.begin_ns && span.begin_ns <= span.end_ns, "{span:?} after {last_ns}");
        last_ns = span.end_ns;
    }
    assert!(last_ns <= ended_ns);
    let sum: u64 = spans.iter().map(|s| s.end_ns - s.begin_ns).sum();
    assert!(sum > 0 && sum <= ended_ns - began_ns);
}

#[test]
fn marked_passes_are_timed_in_order_within_their_submit() {
    let Some(gpu) = gpu("marked_passes_are_timed_in_order_within_their_submit", FeatureOverrides::default()) else { return };
    let mut timestamps = TimestampRing::new(&gpu).unwrap();
    assert_eq!(timestamps.clock_error_ns().is_some(), gpu.has_timestamps());
    let mut work = Work::new(&gpu);
    for layer in 0..3 {
        work.gemm(&gpu, KernelFamily::Linear, layer);
        work.gemm(&gpu, KernelFamily::Linear, layer);
        work.gemm(&gpu, KernelFamily::Attention, layer);
    }
    let began_ns = now();
    let submitted = gpu.submit_traced(&mut work.recorder, &mut timestamps).unwrap();
    gpu.wait(&submitted).unwrap();
    let spans = collected(&gpu, &mut timestamps);
    assert_ordered_within(&spans, (began_ns, now()));
    if gpu.has_timestamps() {
        let marks: Vec<_> = spans.iter().map(|s| (s.family, s.layer, s.estimated)).collect();
        let layer = |l| [(KernelFamily::Linear, l, false), (KernelFamily::Attention, l, false)];
        assert_eq!(marks, [layer(0), layer(1), layer(2)].concat());
    }
    assert_eq!(collected(&gpu, &mut timestamps), []);
    assert_eq!(timestamps.n_dropped(), 0);
}

#[test]
fn traced_submits_in_flight_together_come_back_in_order() {
    let Some(gpu) = gpu("traced_submits_in_flight_together_come_back_in_order", FeatureOverrides::default()) else { return };
    let mut timestamps = TimestampRing::new(&gpu).unwrap();
    let mut work = Work::new(&gpu);
    let began_ns = now();
    let mut spans = Vec::new();
    for layer in 0..20 {
        work.gemm(&gpu, KernelFamily::Linear, layer);
        gpu.submit_traced(&mut work.recorder, &mut timestamps).unwrap();
        timestamps.collect(&gpu, |span| spans.push(span));
    }
    gpu.wait_idle().unwrap();
    timestamps.collect(&gpu, |span| spans.push(span));
    assert_ordered_within(&spans, (began_ns, now()));
    assert_eq!(spans.iter().map(|s| s.layer).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
}

#[test]
fn copy_between_passes_is_the_gap_between_them() {
    let Some(gpu) = gpu("copy_between_passes_is_the_gap_between_them", FeatureOverrides::default()) else { return };
    let mut timestamps = TimestampRing::new(&gpu).unwrap();
    let mut work = Work::new(&gpu);
    work.gemm(&gpu, KernelFamily::Linear, 0);
    work.copy();
    work.gemm(&gpu, KernelFamily::Linear, 0);
    let began_ns = now();
    gpu.submit_traced(&mut work.recorder, &mut timestamps).unwrap();
    work.copy();
    gpu.submit_traced(&mut work.recorder, &mut timestamps).unwrap();
    gpu.wait_idle().unwrap();
    let spans = collected(&gpu, &mut timestamps);
    assert_ordered_within(&spans, (began_ns, now()));
    if gpu.has_timestamps() {
        let seen: Vec<_> = spans.iter().map(|s| (s.family, s.estimated)).collect();
        use KernelFamily::{Copy, Linear};
        assert_eq!(seen, [(Linear, false), (Copy, true), (Linear, false), (Copy, true)]);
        assert_eq!((spans[0].end_ns, spans[2].begin_ns), (spans[1].begin_ns, spans[1].end_ns));
    }
}

#[test]
fn device_without_timestamps_gives_one_estimated_span_per_submit() {
    let overrides = FeatureOverrides { no_timestamps: true, ..FeatureOverrides::default() };
    let Some(gpu) = gpu("device_without_timestamps_gives_one_estimated_span_per_submit", overrides) else { return };
    let mut timestamps = TimestampRing::new(&gpu).unwrap();
    assert_eq!(timestamps.clock_error_ns(), None);
    let mut work = Work::new(&gpu);
    let began_ns = now();
    work.gemm(&gpu, KernelFamily::Linear, 1);
    work.gemm(&gpu, KernelFamily::Linear, 2);
    gpu.submit_traced(&mut work.recorder, &mut timestamps).unwrap();
    work.gemm(&gpu, KernelFamily::Norm, 2);
    work.gemm(&gpu, KernelFamily::Attention, 2);
    gpu.submit_traced(&mut work.recorder, &mut timestamps).unwrap();
    gpu.wait_idle().unwrap();
    let spans = collected(&gpu, &mut timestamps);
    assert_ordered_within(&spans, (began_ns, now()));
    let seen: Vec<_> = spans.iter().map(|s| (s.family, s.layer, s.estimated)).collect();
    assert_eq!(seen, [(KernelFamily::Linear, NO_LAYER, true), (KernelFamily::Other, 2, true)]);
}

#[test]
fn full_ring_drops_and_counts_but_the_work_is_done() {
    let Some(gpu) = gpu("full_ring_drops_and_counts_but_the_work_is_done", FeatureOverrides::default()) else { return };
    let mut timestamps = TimestampRing::new(&gpu).unwrap();
    let mut work = Work::new(&gpu);
    let from = work.buffers[0].buffer.slice(0, 16);
    let to = work.buffers[1].buffer.slice(0, 16);
    for _ in 0..MAX_IN_FLIGHT + 3 {
        work.recorder.copy(&from, &to);
        gpu.submit_traced(&mut work.recorder, &mut timestamps).unwrap();
        assert!(work.recorder.is_empty());
    }
    gpu.wait_idle().unwrap();
    assert_eq!(timestamps.n_dropped(), 3);
    assert_eq!(collected(&gpu, &mut timestamps).len(), MAX_IN_FLIGHT);
    gpu.submit_traced(&mut Recorder::new(), &mut timestamps).unwrap();
    gpu.wait_idle().unwrap();
    assert_eq!((collected(&gpu, &mut timestamps).len(), timestamps.n_dropped()), (0, 3), "nothing is no work to time");
}

#[test]
fn passes_beyond_the_limit_are_done_untimed_and_the_submit_counted() {
    let Some(gpu) = gpu("passes_beyond_the_limit_are_done_untimed_and_the_submit_counted", FeatureOverrides::default()) else {
        return;
    };
    if !gpu.has_timestamps() {
        return;
    }
    let mut timestamps = TimestampRing::new(&gpu).unwrap();
    let tiny = gpu.buffer("test", 1 << 16).unwrap().all();
    let folded = gpu.buffer("test", 1 << 10).unwrap().all();
    let mut recorder = Recorder::new();
    for layer in 0..MAX_PASSES as u32 + 2 {
        recorder.mark(KernelFamily::Norm, layer);
        bench::record_stream_read(&gpu, &mut recorder, &tiny, &folded).unwrap();
    }
    let began_ns = now();
    let submitted = gpu.submit_traced(&mut recorder, &mut timestamps).unwrap();
    assert_eq!(submitted.n_dispatches, MAX_PASSES + 2);
    gpu.wait(&submitted).unwrap();
    let spans = collected(&gpu, &mut timestamps);
    assert_ordered_within(&spans, (began_ns, now()));
    assert_eq!((spans.len(), timestamps.n_dropped()), (MAX_PASSES, 1));
}

#[test]
fn lost_gpu_drops_and_counts_its_submits() {
    let Ok(gpu) = Gpu::open(&strata::gpu::GpuOptions::default()) else { return };
    let mut timestamps = TimestampRing::new(&gpu).unwrap();
    let mut work = Work::new(&gpu);
    work.gemm(&gpu, KernelFamily::Linear, 0);
    gpu.submit_traced(&mut work.recorder, &mut timestamps).unwrap();
    gpu.lose();
    let n = collected(&gpu, &mut timestamps).len() as u64;
    assert!(n + timestamps.n_dropped() <= 1, "seen, dropped, or still waited for, and no panic");
    work.gemm(&gpu, KernelFamily::Linear, 0);
    assert!(gpu.submit_traced(&mut work.recorder, &mut timestamps).is_err());
}

#[test]
fn recorded_spans_count_as_gpu_time() {
    let hub = Hub::new(64);
    let lane = hub.lane("gpu");
    let span = GpuSpan { family: KernelFamily::Linear, layer: 3, begin_ns: 10, end_ns: 40, estimated: false };
    lane.record(span.event());
    let event = hub.snapshot().lanes[0].events[0];
    assert_eq!(event.kind, EventKind::GpuPass { family: KernelFamily::Linear, layer: 3, estimated: false });
    assert_eq!((event.begin_ns, event.end_ns(), hub.counters().gpu_ns), (10, 40, 30));
}
