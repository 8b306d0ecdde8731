// Streaming read: reads a buffer once and folds it, as a bandwidth baseline for weight-bound kernels.
// Bindings: source (any bits) · folded u32 [lanes].
// Grid: 64 lanes, 256 bytes each, size / 16384 workgroups (a partial workgroup at the end is left out). INT64: 64-bit
// loads, the widest available, for software devices. COALESCED: neighboring lanes read neighboring words, for real
// GPUs.
#ifdef INT64
@group(0) @binding(0) var<storage, read> source: array<vec4<u64>>;
#else
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
#endif
@group(0) @binding(1) var<storage, read_write> folded: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let thread = group.x * 64u + lane;
#ifdef INT64
    var fold = vec4<u64>();
#for i in 0..8
#ifdef COALESCED
    fold ^= source[group.x * 512u + #{i*64}u + lane];
#else
    fold ^= source[thread * 8u + #{i}u];
#endif
#endfor
    let pair = fold.xy ^ fold.zw;
    let one = pair.x ^ pair.y;
    folded[thread] = u32(one) ^ u32(one >> 32u);
#else
    var fold = vec4<u32>();
#for i in 0..16
#ifdef COALESCED
    fold ^= source[group.x * 1024u + #{i*64}u + lane];
#else
    fold ^= source[thread * 16u + #{i}u];
#endif
#endfor
    folded[thread] = fold.x ^ fold.y ^ fold.z ^ fold.w;
#endif
}
