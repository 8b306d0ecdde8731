// For subgroups of 8 lanes: each lane has 8 of every 64 elements of a head of HEAD_DIM.
// The 8 elements of the lane in the n-th 64; lanes beyond D repeat the last ones.
fn own(n: u32, lane: u32) -> u32 {
    return min(n * 64u + lane * 8u, HEAD_DIM - 8u);
}
