// Top-k: the k largest logits (unsorted), with the maximum and the sum of exp(logit - maximum) over all.
// Radix select: finds the order-preserving bits of the k-th largest logit a byte at a time.
// Bindings: logits f32 [V] · out u32 [4 + 2 * CAPACITY]: entries found (may pass CAPACITY when many tie), bits of the
//   maximum, bits of the sum, unused, then pairs (token, bits of its logit)
// Grid: one workgroup of 256 lanes. Workgroup memory: 3 KiB.
struct Params { vocab_size: u32, k: u32 }
#params
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

const CAPACITY: u32 = #{CAPACITY}u;
var<workgroup> histogram: array<atomic<u32>, 256>;
var<workgroup> partial: array<f32, 256>;
var<workgroup> prefix: u32;
var<workgroup> wanted: u32;
var<workgroup> n_found: atomic<u32>;

// Larger floats get larger keys.
fn key(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

fn maximum(lane: u32, value: f32) -> f32 {
    partial[lane] = value;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step /= 2u) {
        if lane < step {
            partial[lane] = max(partial[lane], partial[lane + step]);
        }
        workgroupBarrier();
    }
    let result = partial[0];
    workgroupBarrier();
    return result;
}

fn total(lane: u32, value: f32) -> f32 {
    partial[lane] = value;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step /= 2u) {
        if lane < step {
            partial[lane] += partial[lane + step];
        }
        workgroupBarrier();
    }
    let result = partial[0];
    workgroupBarrier();
    return result;
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var highest = -3.4e38;
    for (var i = lane; i < params.vocab_size; i += 256u) {
        highest = max(highest, logits[i]);
    }
    let top = maximum(lane, highest);
    var mass = 0.0;
    for (var i = lane; i < params.vocab_size; i += 256u) {
        mass += exp(logits[i] - top);
    }
    let sum = total(lane, mass);

    if lane == 0u {
        prefix = 0u;
        wanted = min(params.k, params.vocab_size);
        atomicStore(&n_found, 0u);
    }
    for (var shift = 32u; shift > 0u; shift -= 8u) {
        atomicStore(&histogram[lane], 0u);
        workgroupBarrier();
        let known = prefix;
        for (var i = lane; i < params.vocab_size; i += 256u) {
            let bits = key(logits[i]);
            // `known` holds the bytes above `shift`; at the first pass there are none.
            if shift == 32u || (bits >> (shift & 31u)) == known {
                atomicAdd(&histogram[(bits >> (shift - 8u)) & 255u], 1u);
            }
        }
        workgroupBarrier();
        if lane == 0u {
            var left = wanted;
            var digit = 255u;
            loop {
                let n = atomicLoad(&histogram[digit]);
                if n >= left || digit == 0u {
                    break;
                }
                left -= n;
                digit -= 1u;
            }
            wanted = left;
            prefix = (known << 8u) | digit;
        }
        workgroupBarrier();
    }
    let threshold = prefix;
    for (var i = lane; i < params.vocab_size; i += 256u) {
        if key(logits[i]) >= threshold {
            let at = atomicAdd(&n_found, 1u);
            if at < CAPACITY {
                out[4u + 2u * at] = i;
                out[5u + 2u * at] = bitcast<u32>(logits[i]);
            }
        }
    }
    workgroupBarrier();
    if lane == 0u {
        out[0] = atomicLoad(&n_found);
        out[1] = bitcast<u32>(top);
        out[2] = bitcast<u32>(sum);
    }
}
