// Argmax: the largest logit and its token; the lowest token wins a tie.
// SLICE: one workgroup per slice of the vocabulary, each with its own result. MERGE: the best of the results of SLICES.
// Bindings: logits f32 [V] (MERGE: parts u32 [SLICES, 2]) · out u32 [2] (SLICE: [SLICES, 2]): token, bits of its logit
// Grid: one workgroup of 256 lanes (SLICE: SLICES). Workgroup memory: 2 KiB.
struct Params { vocab_size: u32 }
#params
#ifdef MERGE
@group(0) @binding(0) var<storage, read> parts: array<vec2<u32>>;
#else
@group(0) @binding(0) var<storage, read> logits: array<f32>;
#endif
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

// Token of an empty slice.
const NONE: u32 = 0xffffffffu;
var<workgroup> best: array<f32, 256>;
var<workgroup> best_at: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var value = -3.4e38;
    var at = NONE;
#ifdef MERGE
    for (var i = lane; i < #{SLICES}u; i += 256u) {
        let part = parts[i];
        let v = bitcast<f32>(part.y);
        // Slices are in the order of their tokens.
        if part.x != NONE && (v > value || at == NONE) {
            value = v;
            at = part.x;
        }
    }
#else
#ifdef SLICE
    let n = (params.vocab_size + #{SLICES-1}u) / #{SLICES}u;
    let first = group.x * n;
    let end = min(first + n, params.vocab_size);
    let out_at = 2u * group.x;
#else
    let first = 0u;
    let end = params.vocab_size;
    let out_at = 0u;
#endif
    for (var i = first + lane; i < end; i += 256u) {
        let v = logits[i];
        if v > value || at == NONE {
            value = v;
            at = i;
        }
    }
#endif
    best[lane] = value;
    best_at[lane] = at;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step /= 2u) {
        if lane < step {
            let v = best[lane + step];
            let i = best_at[lane + step];
            if v > best[lane] || (v == best[lane] && i < best_at[lane]) {
                best[lane] = v;
                best_at[lane] = i;
            }
        }
        workgroupBarrier();
    }
    if lane == 0u {
#ifdef MERGE
        let out_at = 0u;
#endif
        out[out_at] = best_at[0];
        out[out_at + 1u] = bitcast<u32>(best[0]);
    }
}
