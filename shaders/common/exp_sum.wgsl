// Sums of exponentials: (maximum, sum of exp(score - maximum)) of scores, and that of two sets together.
fn merged(x: vec2<f32>, y: vec2<f32>) -> vec2<f32> {
    let top = max(x.x, y.x);
    return vec2<f32>(top, x.y * exp(x.x - top) + y.y * exp(y.x - top));
}
