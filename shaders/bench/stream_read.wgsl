// Reads a buffer once, as fast as this device can: the yardstick for decode, which does little else.
// Bindings: source u32x4 [n_lanes * n_per_lane] · sums u32 [n_lanes]
// Grid: n_lanes / 64 workgroups of 64 lanes. A lane reads every n_lanes-th element, or its own run (CONTIGUOUS).
struct Params { n_per_lane: u32, n_lanes: u32 }
#params
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = vec4<u32>(0u);
#ifdef CONTIGUOUS
    let first = id.x * params.n_per_lane;
    let step = 1u;
#else
    let first = id.x;
    let step = params.n_lanes;
#endif
    for (var i = 0u; i < params.n_per_lane; i += 4u) {
        sum = sum ^ source[first + i * step] ^ source[first + (i + 1u) * step] ^ source[first + (i + 2u) * step]
            ^ source[first + (i + 3u) * step];
    }
    sums[id.x] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}
