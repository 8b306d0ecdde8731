// Argmax: the largest logit and its token; the lowest token wins a tie.
// Bindings: logits f32 [V] · out u32 [2] (token, bits of its logit)
// Grid: one workgroup of 256 lanes. Workgroup memory: 2 KiB.
struct Params { vocab_size: u32 }
#params
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

var<workgroup> best: array<f32, 256>;
var<workgroup> best_at: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var value = -3.4e38;
    var at = 0xffffffffu;
    for (var i = lane; i < params.vocab_size; i += 256u) {
        let v = logits[i];
        if v > value || at == 0xffffffffu {
            value = v;
            at = i;
        }
    }
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
        out[0] = best_at[0];
        out[1] = bitcast<u32>(best[0]);
    }
}
