// RoPE and append: for the fused q, k, v rows of new tokens, normalizes q and k per head (QK_NORM), rotates them,
// scales q, and appends k and v to the KV blocks.
// Source: RoFormer §3.4 (Su et al. 2021); Qwen3 for the per-head norm.
// Bindings: qkv f32 [T, (H + 2G) D] · rope f32 [T, R, 2] (cos, sin of each of R pairs) · table u32 [G, n_blocks] ·
//   kv f16 or f32 blocks · q f32 [T, H, D] · q_weight, k_weight f32 [D] (QK_NORM)
// Grid: (tokens, H + 2G), 32 lanes; a lane owns 4 elements (two pairs). Workgroup memory: 128 B with QK_NORM.
struct Params {
    first_token: u32,   // row of qkv and of rope of the first token of this dispatch
    first_slot: u32,    // its destination, counted from the first token of the segment
    n_blocks: u32,
    n_head: u32,
    n_kv_head: u32,
    n_pairs: u32,       // R; the first 2R elements of a head rotate
    scale: f32,         // folded into q
    eps: f32,
}
#params
@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
#ifdef KV_F16
@group(0) @binding(3) var<storage, read_write> kv: array<u32>;
#else
@group(0) @binding(3) var<storage, read_write> kv: array<vec2<f32>>;
#endif
@group(0) @binding(4) var<storage, read_write> q: array<vec2<f32>>;
#ifdef QK_NORM
@group(0) @binding(5) var<storage, read> q_weight: array<f32>;
@group(0) @binding(6) var<storage, read> k_weight: array<f32>;
var<workgroup> partial: array<f32, 32>;
#endif

const D: u32 = #{D}u;

// Two consecutive elements at an even index.
fn store_kv(at: u32, v: vec2<f32>) {
#ifdef KV_F16
    kv[at / 2u] = pack2x16float(v);
#else
    kv[at / 2u] = v;
#endif
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = params.first_token + group.x;
    let head = group.y;
    let n_q = params.n_head;
    let is_q = head < n_q;
    let is_v = head >= n_q + params.n_kv_head;
    let g = (head - n_q) % params.n_kv_head;
    let source = t * (n_q + 2u * params.n_kv_head) * D + head * D;
    var row = (t * n_q + head) * D;
    if !is_q {
        let token = params.first_slot + group.x;
        row = table[g * params.n_blocks + token / 16u] * 32u * D + (token % 16u) * D;
        if is_v {
            row += 16u * D;
        }
    }
    var norm = 1.0;
#ifdef QK_NORM
    var square = 0.0;
    for (var i = lane; i < D; i += 32u) {
        square += qkv[source + i] * qkv[source + i];
    }
    partial[lane] = square;
    workgroupBarrier();
    for (var step = 16u; step > 0u; step /= 2u) {
        if lane < step {
            partial[lane] += partial[lane + step];
        }
        workgroupBarrier();
    }
    norm = 1.0 / sqrt(partial[0] / f32(D) + params.eps);
#endif
    for (var j = lane; j < D / 4u; j += 32u) {
        // The four elements are i0, i0 + 1 and i1, i1 + 1.
        var i0 = 4u * j;
        var i1 = 4u * j + 2u;
        let rotates = !is_v && 4u * j < 2u * params.n_pairs;
#ifdef HALF
        if rotates {
            i0 = 2u * j;
            i1 = 2u * j + params.n_pairs;
        }
#endif
        var a = vec2<f32>(qkv[source + i0], qkv[source + i0 + 1u]);
        var b = vec2<f32>(qkv[source + i1], qkv[source + i1 + 1u]);
#ifdef QK_NORM
        if is_q {
            a *= norm * vec2<f32>(q_weight[i0], q_weight[i0 + 1u]);
            b *= norm * vec2<f32>(q_weight[i1], q_weight[i1 + 1u]);
        } else if !is_v {
            a *= norm * vec2<f32>(k_weight[i0], k_weight[i0 + 1u]);
            b *= norm * vec2<f32>(k_weight[i1], k_weight[i1 + 1u]);
        }
#endif
        if rotates {
            let c0 = rope[t * params.n_pairs + 2u * j];
            let c1 = rope[t * params.n_pairs + 2u * j + 1u];
#ifdef HALF
            let x = vec2<f32>(a.x * c0.x - b.x * c0.y, a.y * c1.x - b.y * c1.y);
            let y = vec2<f32>(a.x * c0.y + b.x * c0.x, a.y * c1.y + b.y * c1.x);
            a = x;
            b = y;
#else
            a = vec2<f32>(a.x * c0.x - a.y * c0.y, a.x * c0.y + a.y * c0.x);
            b = vec2<f32>(b.x * c1.x - b.y * c1.y, b.x * c1.y + b.y * c1.x);
#endif
        }
        if is_q {
            q[(row + i0) / 2u] = a * params.scale;
            q[(row + i1) / 2u] = b * params.scale;
        } else {
            store_kv(row + i0, a);
            store_kv(row + i1, b);
        }
    }
}
