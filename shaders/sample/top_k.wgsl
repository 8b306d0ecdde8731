// Top-k: the k largest logits (unsorted), with the maximum and the sum of exp(logit - maximum) over all.
// Radix select: finds the order-preserving bits of the k-th largest logit a byte at a time.
// SLICE: one workgroup per slice of the vocabulary, each with its own result. MERGE: the k largest of the results of SLICES.
// Bindings: logits f32 [V] (MERGE: parts, the results of the slices) · out u32 [4 + 2 * CAPACITY] (SLICE: [SLICES, 4 + 2 * CAPACITY]):
//   entries found (may pass CAPACITY when many tie), bits of the maximum, bits of the sum, order-preserving bits of the k-th
//   largest, then pairs (token, bits of its logit)
// Grid: one workgroup of 256 lanes (SLICE: SLICES). Workgroup memory: 3 KiB.
struct Params { vocab_size: u32, k: u32 }
#params
#ifdef MERGE
@group(0) @binding(0) var<storage, read> parts: array<u32>;
#else
@group(0) @binding(0) var<storage, read> logits: array<f32>;
#endif
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

const CAPACITY: u32 = #{CAPACITY}u;
const RESULT_WORDS: u32 = 4u + 2u * CAPACITY;
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

// Items of this workgroup: logits of its slice, or the entries of all slices.
struct Items { first: u32, n: u32, out_at: u32 }

fn items(group: u32) -> Items {
#ifdef MERGE
    return Items(0u, #{SLICES}u * CAPACITY, 0u);
#else
#ifdef SLICE
    let n = (params.vocab_size + #{SLICES-1}u) / #{SLICES}u;
    let first = min(group * n, params.vocab_size);
    return Items(first, min(n, params.vocab_size - first), group * RESULT_WORDS);
#else
    return Items(0u, params.vocab_size, 0u);
#endif
#endif
}

#ifdef MERGE
fn exists(i: u32) -> bool {
    return i % CAPACITY < parts[i / CAPACITY * RESULT_WORDS];
}

fn entry(i: u32) -> u32 {
    return i / CAPACITY * RESULT_WORDS + 4u + 2u * (i % CAPACITY);
}

fn token_of(i: u32) -> u32 {
    return parts[entry(i)];
}

fn logit_of(i: u32) -> f32 {
    return bitcast<f32>(parts[entry(i) + 1u]);
}
#else
fn exists(i: u32) -> bool {
    return true;
}

fn token_of(i: u32) -> u32 {
    return i;
}

fn logit_of(i: u32) -> f32 {
    return logits[i];
}
#endif

// The maximum and the sum of exp(logit - maximum).
fn softmax_of(lane: u32, all: Items) -> vec2<f32> {
    var highest = -3.4e38;
    var mass = 0.0;
#ifdef MERGE
    for (var s = lane; s < #{SLICES}u; s += 256u) {
        highest = max(highest, bitcast<f32>(parts[s * RESULT_WORDS + 1u]));
    }
    let top = maximum(lane, highest);
    for (var s = lane; s < #{SLICES}u; s += 256u) {
        let part = bitcast<vec2<f32>>(vec2(parts[s * RESULT_WORDS + 1u], parts[s * RESULT_WORDS + 2u]));
        mass += part.y * exp(part.x - top);
    }
#else
    for (var i = lane; i < all.n; i += 256u) {
        highest = max(highest, logit_of(all.first + i));
    }
    let top = maximum(lane, highest);
    for (var i = lane; i < all.n; i += 256u) {
        mass += exp(logit_of(all.first + i) - top);
    }
#endif
    return vec2(top, total(lane, mass));
}

fn put(all: Items, i: u32) {
    let at = atomicAdd(&n_found, 1u);
    if at < CAPACITY {
        out[all.out_at + 4u + 2u * at] = token_of(i);
        out[all.out_at + 5u + 2u * at] = bitcast<u32>(logit_of(i));
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let all = items(group.x);
    let softmax = softmax_of(lane, all);
    if lane == 0u {
        prefix = 0u;
        wanted = min(params.k, params.vocab_size);
        atomicStore(&n_found, 0u);
    }
    for (var shift = 32u; shift > 0u; shift -= 8u) {
        atomicStore(&histogram[lane], 0u);
        workgroupBarrier();
        let known = prefix;
        for (var i = all.first + lane; i < all.first + all.n; i += 256u) {
            if exists(i) {
                let bits = key(logit_of(i));
                // `known` holds the bytes above `shift`; at the first pass there are none.
                if shift == 32u || (bits >> (shift & 31u)) == known {
                    atomicAdd(&histogram[(bits >> (shift - 8u)) & 255u], 1u);
                }
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
    // Ties last: only they do not fit.
    for (var i = all.first + lane; i < all.first + all.n; i += 256u) {
        if exists(i) && key(logit_of(i)) > threshold {
            put(all, i);
        }
    }
    workgroupBarrier();
    for (var i = all.first + lane; i < all.first + all.n; i += 256u) {
        if exists(i) && key(logit_of(i)) == threshold {
            put(all, i);
        }
    }
    workgroupBarrier();
#ifdef MERGE
    // A slice that left ties out had more entries than fit here as well, if they are not below the threshold.
    for (var s = lane; s < #{SLICES}u; s += 256u) {
        if parts[s * RESULT_WORDS] > CAPACITY && parts[s * RESULT_WORDS + 3u] >= threshold {
            atomicAdd(&n_found, CAPACITY + 1u);
        }
    }
    workgroupBarrier();
#endif
    if lane == 0u {
        out[all.out_at] = atomicLoad(&n_found);
        out[all.out_at + 1u] = bitcast<u32>(softmax.x);
        out[all.out_at + 2u] = bitcast<u32>(softmax.y);
        out[all.out_at + 3u] = threshold;
    }
}
