// Page bounds: upper and lower bound of q · k over the keys of each page, from its abstract. Per channel it uses the
// midpoint and half the distance of the bounds, for any sign of q. A page with an infinite bound is unbounded.
// Source: LeoAM §4.2; Quest §3.2 (Tang et al. 2024).
// Bindings: q f32 [R, H, D] (scaled) · abstracts f16 [pages, G, 2, D] (minimum, maximum) ·
//   bounds f32 [R, H, pages, 2] (upper, lower)
// Grid: (tiles of 64 pages, G of each of R rows, head sets of GR), 64 lanes; a lane owns one page for GR heads.
struct Params {
    n_pages: u32,
    group: u32,
}
#params
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> abstracts: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> bounds: array<vec2<f32>>;
#import common/vec8

const GR: u32 = #{GR}u;
const HEAD_DIM: u32 = #{D}u;
const KV_HEADS: u32 = #{KV_HEADS}u;
const UNBOUNDED: f32 = 3.0e38;

// Sets the top bit of each half whose exponent is that of infinity.
fn infinite(raw: vec4<u32>) -> vec4<u32> {
    return (raw & vec4<u32>(0x7c007c00u)) + vec4<u32>(0x04000400u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let page = wg.x * 64u + lane;
    let g = wg.y;
    if page >= params.n_pages {
        return;
    }
    let first_head = g * params.group + wg.z * GR;
    // A head set beyond the group repeats the last head and is not stored.
    let last_head = (g + 1u) * params.group - 1u;
    let start = (page * KV_HEADS + g % KV_HEADS) * 2u * HEAD_DIM;
    var flags = vec4<u32>(0u);
#for h in 0..GR
    let q_#{h} = min(first_head + #{h}u, last_head) * HEAD_DIM;
    // Twice the midpoint, and the whole distance.
    var middle_#{h} = 0.0;
    var distance_#{h} = 0.0;
#endfor
    for (var d = 0u; d < HEAD_DIM; d += 8u) {
        let raw_low = abstracts[(start + d) / 8u];
        let raw_high = abstracts[(start + HEAD_DIM + d) / 8u];
        flags |= infinite(raw_low) | infinite(raw_high);
        let low = eight_halves(raw_low);
        let high = eight_halves(raw_high);
        let sum = Eight(high.a + low.a, high.b + low.b);
        let difference = Eight(high.a - low.a, high.b - low.b);
#for h in 0..GR
        let x_#{h} = q[(q_#{h} + d) / 4u];
        let y_#{h} = q[(q_#{h} + d) / 4u + 1u];
        middle_#{h} += dot(x_#{h}, sum.a) + dot(y_#{h}, sum.b);
        distance_#{h} += dot(abs(x_#{h}), difference.a) + dot(abs(y_#{h}), difference.b);
#endfor
    }
    let unknown = any((flags & vec4<u32>(0x80008000u)) != vec4<u32>(0u));
#for h in 0..GR
    if first_head + #{h}u <= last_head {
        let known = 0.5 * vec2<f32>(middle_#{h} + distance_#{h}, middle_#{h} - distance_#{h});
        bounds[(first_head + #{h}u) * params.n_pages + page] = select(known, vec2<f32>(UNBOUNDED, -UNBOUNDED), unknown);
    }
#endfor
}
