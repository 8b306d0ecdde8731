//! Element types of the KV cache.

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvDtype {
    /// half precision
    #[default]
    F16,
    /// 8 bits, keys grouped by channel and values by token
    Q8,
    /// 4 bits, grouped the same way
    Q4,
    /// single precision, for comparing engines
    F32,
}

impl KvDtype {
    /// Name on the command line, in the catalog and in the identity of a store, such as `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            KvDtype::F16 => "f16",
            KvDtype::Q8 => "q8",
            KvDtype::Q4 => "q4",
            KvDtype::F32 => "f32",
        }
    }
}
