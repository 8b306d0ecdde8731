// Draw: samples one of the candidates of sample/top_k by top-k, top-p, min-p and temperature, as the sampler on the CPU does.
// Source: the order of llama.cpp's samplers; `engine/sampler.rs` is the reference, in f64.
// Bindings: result u32 [4 + 2 * CAPACITY] of sample/top_k; its word 3 becomes the token.
// Grid: one workgroup of CAPACITY lanes. Workgroup memory: 4 words a candidate.
struct Params {
    keeps: u32,         // candidates that count, at most CAPACITY
    top_k: u32,         // 0: off
    top_p: f32,
    min_p: f32,
    temperature: f32,   // > 0
    random: f32,        // in [0, 1)
}
#params
@group(0) @binding(0) var<storage, read_write> result: array<u32>;

const CAPACITY: u32 = #{CAPACITY}u;
// Best first; of equal logits the lower token first.
var<workgroup> tokens: array<u32, #{CAPACITY}>;
var<workgroup> logits: array<f32, #{CAPACITY}>;
// exp(logit - maximum), and the same at the temperature.
var<workgroup> masses: array<f32, #{CAPACITY}>;
var<workgroup> weights: array<f32, #{CAPACITY}>;

fn logit_of(i: u32) -> f32 {
    return bitcast<f32>(result[5u + 2u * i]);
}

// Number of candidates before the one that top-p cuts after.
fn top_p_cut(n: u32, total: f32) -> u32 {
    var sum = 0.0;
    for (var i = 0u; i < n; i += 1u) {
        sum += masses[i];
        if sum >= params.top_p * total {
            return i + 1u;
        }
    }
    return n;
}

@compute @workgroup_size(#{CAPACITY})
fn main(@builtin(local_invocation_index) lane: u32) {
    let found = result[0];
    let n = min(found, CAPACITY);
    let highest = bitcast<f32>(result[1]);
    if lane < n {
        let own = logit_of(lane);
        let token = result[4u + 2u * lane];
        var rank = 0u;
        for (var i = 0u; i < n; i += 1u) {
            let other = logit_of(i);
            if other > own || (other == own && result[4u + 2u * i] < token) {
                rank += 1u;
            }
        }
        tokens[rank] = token;
        logits[rank] = own;
        masses[rank] = exp(own - highest);
        weights[rank] = exp((own - highest) / params.temperature);
    }
    workgroupBarrier();
    if lane != 0u || n == 0u {
        return;
    }
    var left = min(n, params.keeps);
    var total = bitcast<f32>(result[2]);
    if params.top_k > 0u && params.top_k <= left && found <= CAPACITY {
        left = params.top_k;
        total = 0.0;
        for (var i = 0u; i < left; i += 1u) {
            total += masses[i];
        }
    }
    if params.top_p < 1.0 {
        left = top_p_cut(left, total);
    }
    if params.min_p > 0.0 {
        var at_least = 0u;
        while at_least < left && masses[at_least] >= params.min_p {
            at_least += 1u;
        }
        left = max(at_least, 1u);
    }
    var sum = 0.0;
    for (var i = 0u; i < left; i += 1u) {
        sum += weights[i];
    }
    var rest = params.random * sum;
    var drawn = left - 1u;
    for (var i = 0u; i < left; i += 1u) {
        rest -= weights[i];
        if rest < 0.0 {
            drawn = i;
            break;
        }
    }
    result[3] = tokens[drawn];
}
