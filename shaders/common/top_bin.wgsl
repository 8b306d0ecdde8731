// One step of a radix selection by a workgroup of 256 lanes, over a histogram of 2,048 bins.
//   top_bin(lane, counts, wanted)   the bin with the item number `wanted` from the top, and the number of items above it
//   sum_before(lane, n)             sum of n over the lanes before this one
//   sum_of_all(lane, n)             sum of n over all lanes
// `counts` has those of bins 2047 - 8 lane, 2046 - 8 lane, ... All lanes call them together. Workgroup memory: 1 KiB.
var<workgroup> sums_of_lanes: array<u32, 256>;
var<workgroup> sums_of_sixteen: array<u32, 16>;
var<workgroup> bin_found: vec2<u32>;

struct Found { bin: u32, n_above: u32 }

// Few barriers, because they cost more than the additions.
fn add_lanes(lane: u32, n: u32) {
    workgroupBarrier();
    sums_of_lanes[lane] = n;
    workgroupBarrier();
    if lane < 16u {
        var total = 0u;
        for (var i = 0u; i < 16u; i += 1u) {
            total += sums_of_lanes[lane * 16u + i];
        }
        sums_of_sixteen[lane] = total;
    }
    workgroupBarrier();
}

fn sum_before(lane: u32, n: u32) -> u32 {
    add_lanes(lane, n);
    var total = 0u;
    for (var i = 0u; i < lane / 16u; i += 1u) {
        total += sums_of_sixteen[i];
    }
    for (var i = lane / 16u * 16u; i < lane; i += 1u) {
        total += sums_of_lanes[i];
    }
    return total;
}

fn sum_of_all(lane: u32, n: u32) -> u32 {
    add_lanes(lane, n);
    var total = 0u;
    for (var i = 0u; i < 16u; i += 1u) {
        total += sums_of_sixteen[i];
    }
    return total;
}

fn top_bin(lane: u32, counts: array<u32, 8>, wanted: u32) -> Found {
    if lane == 0u {
        bin_found = vec2<u32>(0u, 0u);
    }
    var total = 0u;
    var bins = counts;
    for (var i = 0u; i < 8u; i += 1u) {
        total += bins[i];
    }
    var before = sum_before(lane, total);
    if before < wanted && wanted <= before + total {
        for (var i = 0u; i < 8u; i += 1u) {
            if wanted <= before + bins[i] {
                bin_found = vec2<u32>(2047u - (lane * 8u + i), before);
                break;
            }
            before += bins[i];
        }
    }
    workgroupBarrier();
    let found = bin_found;
    workgroupBarrier();
    return Found(found.x, found.y);
}
