// Plain f32 GEMM, y = W x: the best one found for software devices, as a baseline for the real products.
// SUBGROUP8 (subgroups of exactly 8 lanes, 64-bit loads): 4 rows x 16 tokens per lane, activations broadcast.
// Otherwise: 8 rows x 8 tokens per lane.
// Bindings: w f32, SUBGROUP8: [N / 32][K / 8][32 rows][8], else [N, K] · x f32 [T, K] · y f32 [T, N].
// Grid: SUBGROUP8: (N / 32, T / 16), 8 lanes; else (N / 64, T / 64), 8 x 8 lanes. Sizes are multiples of the tiles.
struct Params { n_cols: u32, n_rows: u32 }
#params
#ifdef SUBGROUP8
@group(0) @binding(0) var<storage, read> w: array<vec4<u64>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u64>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

struct Eight { a: vec4<f32>, b: vec4<f32> }
fn eight(v: vec4<u64>) -> Eight {
    return Eight(bitcast<vec4<f32>>(vec4(u32(v.x), u32(v.x >> 32u), u32(v.y), u32(v.y >> 32u))),
        bitcast<vec4<f32>>(vec4(u32(v.z), u32(v.z >> 32u), u32(v.w), u32(v.w >> 32u))));
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let n_k8 = params.n_cols / 8u;
#for t in 0..16
    var y#{t} = vec4<f32>();
#endfor
    for (var k8 = 0u; k8 < n_k8; k8++) {
#for r in 0..4
        let w#{r} = eight(w[(group.x * n_k8 + k8) * 32u + lane * 4u + #{r}u]);
#endfor
#for h in 0..2
        let x#{h} = eight(x[(group.y * 16u + #{h*8}u + lane) * n_k8 + k8]);
#for t in 0..8
        let a#{h}_#{t} = subgroupBroadcast(x#{h}.a, #{t}u);
        let b#{h}_#{t} = subgroupBroadcast(x#{h}.b, #{t}u);
#for r in 0..4
        y#{h*8+t}[#{r}] += dot(w#{r}.a, a#{h}_#{t}) + dot(w#{r}.b, b#{h}_#{t});
#endfor
#endfor
#endfor
    }
#for t in 0..16
#for r in 0..4
    y[(group.y * 16u + #{t}u) * params.n_rows + group.x * 32u + lane * 4u + #{r}u] = y#{t}[#{r}];
#endfor
#endfor
}
#else
@group(0) @binding(0) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let n_k4 = params.n_cols / 4u;
#for t in 0..8
#for r in 0..8
    var y#{t}_#{r} = 0.0;
#endfor
#endfor
    for (var k4 = 0u; k4 < n_k4; k4++) {
#for r in 0..8
        let w#{r} = w[(id.x * 8u + #{r}u) * n_k4 + k4];
#endfor
#for t in 0..8
        let x#{t} = x[(id.y * 8u + #{t}u) * n_k4 + k4];
#for r in 0..8
        y#{t}_#{r} += dot(w#{r}, x#{t});
#endfor
#endfor
    }
#for t in 0..8
#for r in 0..8
    y[(id.y * 8u + #{t}u) * params.n_rows + id.x * 8u + #{r}u] = y#{t}_#{r};
#endfor
#endfor
}
#endif
