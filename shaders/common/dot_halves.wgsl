// Dot products of 32 weights of F16 or BF16 with 32 activations in f16 (linear/halve_activations), summed in f32.
struct X32 { first: u32 }

fn load_x32(t: u32, k32: u32) -> X32 {
    return X32((t * 2u * n_groups() + k32) * 4u);
}

fn dot32(w: Block, x: X32) -> f32 {
    var sum = 0.0;
#for i in 0..4
    let w#{i} = w8(w, #{i}u);
    let q#{i} = x_values[x.first + #{i}u];
    sum += dot(w#{i}.a, vec4(unpack2x16float(q#{i}.x), unpack2x16float(q#{i}.y)))
        + dot(w#{i}.b, vec4(unpack2x16float(q#{i}.z), unpack2x16float(q#{i}.w)));
#endfor
    return sum;
}

fn x_scale(t: u32) -> f32 {
    return x_scales[t];
}
