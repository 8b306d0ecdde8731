// C = A B^T for f32 square matrices of n rows: 8 x 8 outputs per thread in registers, no workgroup memory.
// The yardstick for prefill: what this device reaches on a plain product with nothing to unpack.
// Bindings: a f32 [n, n] · b f32 [n, n] · c f32 [n, n]
// Grid: (n / 64, n / 64), 8 x 8 lanes. n is a multiple of 64.
struct Params { n4: u32 }
#params
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let n4 = params.n4;
    let row = id.y * 8u;
    let col = id.x * 8u;
#for i in 0..8
    var lo_#{i} = vec4<f32>(0.0);
    var hi_#{i} = vec4<f32>(0.0);
#endfor
    for (var k = 0u; k < n4; k += 1u) {
#for j in 0..8
        let b_#{j} = b[(col + #{j}u) * n4 + k];
#endfor
#for i in 0..8
        let a_#{i} = a[(row + #{i}u) * n4 + k];
        lo_#{i} += vec4<f32>(dot(a_#{i}, b_0), dot(a_#{i}, b_1), dot(a_#{i}, b_2), dot(a_#{i}, b_3));
        hi_#{i} += vec4<f32>(dot(a_#{i}, b_4), dot(a_#{i}, b_5), dot(a_#{i}, b_6), dot(a_#{i}, b_7));
#endfor
    }
#for i in 0..8
    c[(row + #{i}u) * n4 + col / 4u] = lo_#{i};
    c[(row + #{i}u) * n4 + col / 4u + 1u] = hi_#{i};
#endfor
}
