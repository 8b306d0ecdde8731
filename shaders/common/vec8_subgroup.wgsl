// For subgroups of 8 lanes, each of which holds 8 of every 64 elements of a head of HEAD_DIM.
// The lane's 8 elements of the n-th 64; lanes past D hold the last ones again.
fn own(n: u32, lane: u32) -> u32 {
    return min(n * 64u + lane * 8u, HEAD_DIM - 8u);
}
