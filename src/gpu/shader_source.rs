//! Shader sources: embedded files, a small preprocessor, and the declared bindings of a kernel.
//!
//! ```text
//! shaders/<family>/<op>.wgsl ─► #import, #ifdef, #for, #{NAME}, #params ─► WGSL ─► naga
//! ```
//! Each directive has its own line:
//! * `#import common/x` includes `shaders/common/x.wgsl` once;
//! * `#ifdef A` / `#ifndef A` / `#else` / `#endif`, nested;
//! * `#for i in 0..N` / `#endfor` repeats the lines with `#{i}` replaced (bounds: numbers or defines), nested;
//! * `#params` declares `params: Params`, as immediates or (fallback) as a uniform;
//! * `#{NAME}` anywhere is replaced by the define's value, `#{A+B}`, `#{A*B}`, `#{A-B}`, `#{A/B}` by integer arithmetic.

use std::collections::{HashMap, HashSet};

use super::error::GpuError;

macro_rules! embed {
    ($($path:literal),* $(,)?) => {
        /// Every shader file, by its path below `shaders/`.
        pub const FILES: &[(&str, &str)] = &[$(($path, include_str!(concat!("../../shaders/", $path, ".wgsl")))),*];
    };
}

embed!(
    "kv/page_abstracts",
    "attention/decode_merge",
    "attention/decode_merge_subgroup",
    "attention/decode_split",
    "attention/decode_split_subgroup",
    "attention/decode_split_subgroup8",
    "kv/dequantize_pages",
    "attention/prefill_flash",
    "attention/prefill_flash_matrices",
    "attention/prefill_scores",
    "attention/prefill_scores_subgroup8",
    "attention/prefill_softmax",
    "attention/prefill_softmax_subgroup8",
    "attention/prefill_values",
    "attention/prefill_values_subgroup8",
    "attention/rope_append",
    "kv/page_bounds",
    "kv/quantize_pages",
    "attention/qk_scores",
    "attention/qk_scores_subgroup8",
    "selection/head_totals",
    "selection/key_histogram",
    "selection/page_candidates",
    "selection/token_counts",
    "selection/token_list",
    "selection/token_scores",
    "selection/token_weights",
    "bench/f16_vectors",
    "bench/gemm",
    "bench/matrix_lanes",
    "bench/matrix_products",
    "bench/stream_read",
    "common/dot4",
    "common/dot_halves",
    "common/activation_bytes",
    "common/activation_halves",
    "common/high_bits",
    "common/dequant_f16",
    "common/dequant_f32",
    "common/dequant_i8g16",
    "common/dequant_q4_0",
    "common/dequant_q4k",
    "common/dequant_q5k",
    "common/dequant_q6k",
    "common/dequant_q8_0",
    "common/vec8",
    "common/exp_sum",
    "common/f16_bits",
    "common/fused_output",
    "common/kquant_scales",
    "common/kv_block",
    "common/kv_int_codes",
    "common/kv_float",
    "common/kv_page",
    "common/kv_quantized",
    "common/last_key",
    "common/linear_params",
    "common/nibbles",
    "common/ordered_bits",
    "common/signed_bytes",
    "common/selection_counters",
    "common/small_halves",
    "common/token_keys",
    "common/top_bin",
    "common/upper_bin",
    "common/vec8_subgroup",
    "common/prefill_flash",
    "common/prefill_scores",
    "common/prefill_values",
    "common/qk_scores",
    "common/weights",
    "linear/embed",
    "linear/matmul_tiled",
    "linear/matmul_subgroup8",
    "linear/matvec_converted",
    "linear/matvec_subgroup",
    "linear/matvec_subgroup8",
    "linear/matmul_fallback",
    "linear/quantize_activations",
    "linear/halve_activations",
    "linear/matmul_cooperative",
    "norm/norm",
    "norm/norm_converted",
    "sample/argmax",
    "sample/draw",
    "sample/top_k",
);

/// A shader file and the defines of one variant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelKey {
    /// path below `shaders/`, without `.wgsl`
    pub shader: &'static str,
    /// sorted by name
    pub defines: Vec<(&'static str, String)>,
}

impl KernelKey {
    /// A variant. A define without a value (for `#ifdef` only) has an empty string.
    pub fn new(shader: &'static str, defines: &[(&'static str, String)]) -> Self {
        let mut defines = defines.to_vec();
        defines.sort();
        KernelKey { shader, defines }
    }

    /// Short name for traces and errors.
    pub fn label(&self) -> String {
        let defines: Vec<String> =
            self.defines.iter().map(|(k, v)| if v.is_empty() { (*k).to_owned() } else { format!("{k}={v}") }).collect();
        format!("{}[{}]", self.shader, defines.join(","))
    }
}

/// One storage binding that a shader declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingDecl {
    /// `@binding(n)` in group 0
    pub binding: u32,
    /// `var<storage, read>` rather than `read_write`
    pub read_only: bool,
}

/// A preprocessed shader.
#[derive(Debug, Clone)]
pub struct ShaderText {
    /// WGSL
    pub wgsl: String,
    /// group 0, in order
    pub bindings: Vec<BindingDecl>,
    /// true if it declares `params`
    pub has_params: bool,
}

/// Expands the variant `key`. `immediates` selects how `params` is declared.
///
/// # Errors
/// [`GpuError::Shader`] for an unknown file, import or define, or an unbalanced directive.
pub fn expand(key: &KernelKey, immediates: bool) -> Result<ShaderText, GpuError> {
    let fail = |reason: String| GpuError::Shader { shader: key.label(), reason };
    let mut state = Expansion {
        defines: key.defines.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
        imported: HashSet::new(),
        immediates,
        has_params: false,
        out: String::new(),
    };
    let lines = file_lines(key.shader).map_err(fail)?;
    state.block(&lines).map_err(fail)?;
    let bindings = declared_bindings(&state.out).map_err(fail)?;
    Ok(ShaderText { wgsl: state.out, bindings, has_params: state.has_params })
}

fn file_lines(path: &str) -> Result<Vec<&'static str>, String> {
    let (_, text) = FILES.iter().find(|(p, _)| *p == path).ok_or_else(|| format!("no shader file '{path}'"))?;
    Ok(text.lines().collect())
}

struct Expansion {
    defines: HashMap<String, String>,
    imported: HashSet<String>,
    immediates: bool,
    has_params: bool,
    out: String,
}

impl Expansion {
    fn block(&mut self, lines: &[&str]) -> Result<(), String> {
        let mut i = 0;
        while i < lines.len() {
            let line = lines[i].trim();
            if let Some(path) = line.strip_prefix("#import ") {
                if self.imported.insert(path.trim().to_owned()) {
                    self.block(&file_lines(path.trim())?)?;
                }
            } else if let Some(name) = line.strip_prefix("#ifdef ").or_else(|| line.strip_prefix("#ifndef ")) {
                let is_ifdef = line.starts_with("#ifdef ");
                let (middle, end) = matching(lines, i, &["#ifdef ", "#ifndef "], "#endif", Some("#else"))?;
                let (if_lines, else_lines) = match middle {
                    Some(m) => (&lines[i + 1..m], &lines[m + 1..end]),
                    None => (&lines[i + 1..end], &lines[end..end]),
                };
                self.block(if self.defines.contains_key(name.trim()) == is_ifdef { if_lines } else { else_lines })?;
                i = end;
            } else if let Some(spec) = line.strip_prefix("#for ") {
                let (_, end) = matching(lines, i, &["#for "], "#endfor", None)?;
                self.repeat(spec, &lines[i + 1..end])?;
                i = end;
            } else if line == "#params" {
                self.has_params = true;
                self.out.push_str(if self.immediates {
                    "var<immediate> params: Params;\n"
                } else {
                    "@group(1) @binding(0) var<uniform> params: Params;\n"
                });
            } else if line.starts_with('#') {
                return Err(format!("unexpected directive '{line}'"));
            } else {
                let text = self.substitute(lines[i])?;
                self.out.push_str(&text);
                self.out.push('\n');
            }
            i += 1;
        }
        Ok(())
    }

    fn repeat(&mut self, spec: &str, body: &[&str]) -> Result<(), String> {
        let (name, range) = spec.split_once(" in ").ok_or_else(|| format!("#for {spec}: expected 'i in a..b'"))?;
        let (from, to) = range.split_once("..").ok_or_else(|| format!("#for {spec}: expected 'a..b'"))?;
        let (from, to) = (self.value(from)?, self.value(to)?);
        let name = name.trim().to_owned();
        let previous = self.defines.get(&name).cloned();
        for i in from..to {
            self.defines.insert(name.clone(), i.to_string());
            self.block(body)?;
        }
        match previous {
            Some(value) => self.defines.insert(name, value),
            None => self.defines.remove(&name),
        };
        Ok(())
    }

    fn substitute(&self, line: &str) -> Result<String, String> {
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(start) = rest.find("#{") {
            out.push_str(&rest[..start]);
            let end = rest[start..].find('}').ok_or_else(|| format!("unclosed '#{{' in '{line}'"))? + start;
            let name = &rest[start + 2..end];
            match self.defines.get(name.trim()) {
                Some(value) => out.push_str(value),
                None => out.push_str(&self.value(name)?.to_string()),
            }
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// An integer: a number, a define, or their sums and products (`*` and `/` bind tighter, left to right).
    fn value(&self, expression: &str) -> Result<i64, String> {
        let expression = expression.trim();
        if let Ok(number) = expression.parse() {
            return Ok(number);
        }
        if let Some(value) = self.defines.get(expression) {
            return self.value(value);
        }
        for operators in [['+', '-'], ['*', '/']] {
            if let Some(at) = expression.rfind(operators) {
                let (a, b) = (self.value(&expression[..at])?, self.value(&expression[at + 1..])?);
                let result = match expression.as_bytes()[at] {
                    b'+' => a.checked_add(b),
                    b'-' => a.checked_sub(b),
                    b'*' => a.checked_mul(b),
                    _ => a.checked_div(b),
                };
                return result.ok_or_else(|| format!("'{expression}' overflows"));
            }
        }
        Err(format!("no define '{expression}'"))
    }
}

/// Lines of the directive that closes the one at `start`, and of the `middle` one at the same depth.
fn matching(
    lines: &[&str],
    start: usize,
    open: &[&str],
    close: &str,
    middle: Option<&str>,
) -> Result<(Option<usize>, usize), String> {
    let (mut depth, mut middle_at) = (0usize, None);
    for (i, line) in lines.iter().enumerate().skip(start) {
        let line = line.trim();
        if open.iter().any(|o| line.starts_with(o)) {
            depth += 1;
        } else if Some(line) == middle && depth == 1 {
            middle_at = Some(i);
        } else if line == close {
            depth -= 1;
            if depth == 0 {
                return Ok((middle_at, i));
            }
        }
    }
    Err(format!("'{}' is never closed", lines[start].trim()))
}

fn declared_bindings(wgsl: &str) -> Result<Vec<BindingDecl>, String> {
    let mut bindings = Vec::new();
    for line in wgsl.lines().map(str::trim) {
        let Some(rest) = line.strip_prefix("@group(0) @binding(") else { continue };
        let number = rest.split(')').next().and_then(|n| n.parse().ok());
        let binding = number.ok_or_else(|| format!("binding number in '{line}'"))?;
        if binding as usize != bindings.len() {
            return Err(format!("bindings must be in order: '{line}'"));
        }
        bindings.push(BindingDecl { binding, read_only: rest.contains("var<storage, read>") });
    }
    Ok(bindings)
}
