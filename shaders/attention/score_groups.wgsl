// Bounds of a page for a KV head: the most that any query head of its group may make of it, each against the highest upper
// bound of all pages for that query head. At most 0, but where a page may hold anything.
// Source: LeoAM, section 4.2, over the group of query heads.
// Bindings: bounds f32 [R, H, pages, 2] (upper, lower) · scores f32 [R, G, pages, 2] (upper, lower), then [R, H, 2] (highest
//   upper bound, 0)
// Grid: G workgroups of LANES for each row; a lane owns every LANES-th page. Workgroup memory: 4 LANES bytes.
struct Params {
    n_pages: u32,
    group: u32,
}
#params
@group(0) @binding(0) var<storage, read> bounds: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read_write> scores: array<vec2<f32>>;

const LANES: u32 = #{LANES}u;
const UNKNOWN: f32 = 3.0e38;
var<workgroup> partial: array<f32, #{LANES}>;

@compute @workgroup_size(#{LANES})
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) n_wg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let g = wg.x;
    for (var h = 0u; h < params.group; h += 1u) {
        let row = (g * params.group + h) * params.n_pages;
        var top = -UNKNOWN;
        for (var page = lane; page < params.n_pages; page += LANES) {
            let upper = bounds[row + page].x;
            top = select(top, max(top, upper), upper < UNKNOWN);
        }
        partial[lane] = top;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if lane < step {
                partial[lane] = max(partial[lane], partial[lane + step]);
            }
            workgroupBarrier();
        }
        let highest = partial[0];
        workgroupBarrier();
        if lane == 0u {
            scores[n_wg.x * params.n_pages + g * params.group + h] = vec2<f32>(highest, 0.0);
        }
        for (var page = lane; page < params.n_pages; page += LANES) {
            let bound = bounds[row + page];
            let at = g * params.n_pages + page;
            var score = select(bound, bound - highest, bound.x < UNKNOWN);
            if h > 0u {
                score = max(score, scores[at]);
            }
            scores[at] = score;
        }
    }
}
