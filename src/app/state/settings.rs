//! Settings: typed text, checked values, and the fields of the settings page.
//!
//! ```text
//! fields (text) ── check() ──► Settings, or one sentence per wrong field; the last valid Settings stay in force
//! ```

use crate::base::{Bytes, Tiers, limits};
use crate::engine::{KvDtype, LoadOptions, PolicySpec, Sampling};

/// Light, dark, or as the desktop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThemeChoice {
    /// as the desktop
    #[default]
    System,
    /// light
    Light,
    /// dark
    Dark,
}

/// Checked values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// how tokens are sampled
    pub sampling: Sampling,
    /// length of an answer at most, tokens
    pub max_tokens: usize,
    /// cap on the context, tokens; the model's window otherwise
    pub context_cap: Option<usize>,
    /// caps on KV bytes in each tier; by the free memory if None
    pub budgets: Tiers<Option<Bytes>>,
    /// element type of K and V
    pub kv_dtype: KvDtype,
    /// policy of answers; None for full attention
    pub policy: Option<PolicySpec>,
    /// documents are saved in the library once they are read
    pub keep_read: bool,
    /// saved KV of a document is reused at another position in a chat
    pub reuse_anywhere: bool,
    /// light or dark
    pub theme: ThemeChoice,
    /// scale of the window; 1 as the desktop
    pub zoom: f32,
}

/// Largest and smallest [`Settings::zoom`].
pub const ZOOM: std::ops::RangeInclusive<f32> = 0.5..=3.0;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            sampling: Sampling::default(),
            max_tokens: limits::DEFAULT_MAX_TOKENS,
            context_cap: None,
            budgets: Tiers::default(),
            kv_dtype: KvDtype::default(),
            policy: None,
            keep_read: true,
            reuse_anywhere: false,
            theme: ThemeChoice::System,
            zoom: 1.0,
        }
    }
}

impl Settings {
    /// Overrides stored values by options of the command line or the environment.
    pub fn override_with(&mut self, given: &LoadOptions) {
        let plain = LoadOptions::default();
        self.context_cap = given.context.or(self.context_cap);
        self.budgets.vram = given.budgets.vram.or(self.budgets.vram);
        self.budgets.ram = given.budgets.ram.or(self.budgets.ram);
        self.budgets.disk = given.budgets.disk.or(self.budgets.disk);
        if given.kv_dtype != plain.kv_dtype {
            self.kv_dtype = given.kv_dtype;
        }
        self.reuse_anywhere |= given.reuse_anywhere;
    }

    /// Writes the load options of these settings to `load`.
    pub fn put_in(&self, load: &mut LoadOptions) {
        (load.context, load.budgets) = (self.context_cap, self.budgets);
        (load.kv_dtype, load.policy, load.reuse_anywhere) = (self.kv_dtype, self.policy, self.reuse_anywhere);
    }
}

/// A field of the settings page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// temperature of sampling
    Temperature,
    /// tokens kept, most likely first
    TopK,
    /// probability mass kept
    TopP,
    /// least share of the best token's probability
    MinP,
    /// penalty on recent tokens
    RepetitionPenalty,
    /// seed of the generator
    Seed,
    /// length of an answer
    MaxTokens,
    /// cap on the context
    ContextCap,
    /// KV bytes in VRAM
    VramBudget,
    /// KV bytes in RAM
    RamBudget,
    /// KV bytes on the disk
    DiskBudget,
}

/// Every field, in the order of the page.
pub const FIELDS: [Field; 11] = [
    Field::Temperature,
    Field::TopK,
    Field::TopP,
    Field::MinP,
    Field::RepetitionPenalty,
    Field::Seed,
    Field::MaxTokens,
    Field::ContextCap,
    Field::VramBudget,
    Field::RamBudget,
    Field::DiskBudget,
];

impl Field {
    /// True if it takes effect when the model is loaded.
    pub fn loads(self) -> bool {
        matches!(self, Field::ContextCap | Field::VramBudget | Field::RamBudget | Field::DiskBudget)
    }

    /// The cap in force, for a budget field.
    pub fn budget(self, budgets: &Tiers<u64>) -> Option<u64> {
        match self {
            Field::VramBudget => Some(budgets.vram),
            Field::RamBudget => Some(budgets.ram),
            Field::DiskBudget => Some(budgets.disk),
            _ => None,
        }
    }

    /// True if it belongs to the model, not to the machine.
    pub fn is_of_model(self) -> bool {
        !matches!(self, Field::VramBudget | Field::RamBudget | Field::DiskBudget)
    }

    /// True if it is a part of [`Settings::sampling`].
    pub fn is_of_sampling(self) -> bool {
        !self.loads() && self != Field::MaxTokens
    }

    /// Key in the settings file.
    pub fn key(self) -> &'static str {
        match self {
            Field::Temperature => "temperature",
            Field::TopK => "top_k",
            Field::TopP => "top_p",
            Field::MinP => "min_p",
            Field::RepetitionPenalty => "repetition_penalty",
            Field::Seed => "seed",
            Field::MaxTokens => "max_tokens",
            Field::ContextCap => "context",
            Field::VramBudget => "vram_budget",
            Field::RamBudget => "ram_budget",
            Field::DiskBudget => "disk_budget",
        }
    }

    /// Label of the field.
    pub fn label(self) -> &'static str {
        match self {
            Field::Temperature => "Temperature",
            Field::TopK => "Top-k",
            Field::TopP => "Top-p",
            Field::MinP => "Min-p",
            Field::RepetitionPenalty => "Repetition",
            Field::Seed => "Seed",
            Field::MaxTokens => "Longest answer",
            Field::ContextCap => "Context cap",
            Field::VramBudget => "VRAM budget",
            Field::RamBudget => "RAM budget",
            Field::DiskBudget => "Disk budget",
        }
    }

    /// Its effect, in a few words.
    pub fn help(self) -> &'static str {
        match self {
            Field::Temperature => "0 always takes the likeliest token and repeats exactly",
            Field::TopK => "choose among this many tokens; 0 keeps all",
            Field::TopP => "choose within this much probability; 1 keeps all",
            Field::MinP => "drop tokens below this share of the likeliest; 0 keeps all",
            Field::RepetitionPenalty => "penalty on recent tokens; 1 changes nothing",
            Field::Seed => "the same seed gives the same answer",
            Field::MaxTokens => "tokens; the answer ends here at the latest",
            Field::ContextCap => "tokens; empty uses the model's whole window",
            Field::VramBudget => "KV cache in VRAM; such as 2GiB. If empty, by the free memory",
            Field::RamBudget => "KV cache in RAM, once VRAM is full; 0 uses none",
            Field::DiskBudget => "KV cache on the disk, saved documents included; 0 uses none",
        }
    }
}

/// Text of the fields, in the order of [`FIELDS`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Form {
    /// one text per field
    pub texts: [String; FIELDS.len()],
    /// one sentence per wrong field
    pub errors: [Option<String>; FIELDS.len()],
}

impl Form {
    /// The fields of `settings`.
    pub fn of(settings: &Settings) -> Form {
        let s = &settings.sampling;
        let cap = settings.context_cap.map(|n| n.to_string()).unwrap_or_default();
        let texts = [
            s.temperature.to_string(),
            s.top_k.to_string(),
            s.top_p.to_string(),
            s.min_p.to_string(),
            s.repetition_penalty.to_string(),
            s.seed.to_string(),
            settings.max_tokens.to_string(),
            cap,
            typed(settings.budgets.vram),
            typed(settings.budgets.ram),
            typed(settings.budgets.disk),
        ];
        Form { texts, errors: Default::default() }
    }

    /// Writes every valid field to `settings`, and a sentence for every wrong one.
    pub fn check(&mut self, settings: &mut Settings) {
        for (i, field) in FIELDS.iter().enumerate() {
            self.errors[i] = field.take(&self.texts[i], settings).err();
        }
    }
}

impl Field {
    /// Parses a text into `settings`. On an error nothing changes.
    ///
    /// # Errors
    /// One sentence.
    pub fn take(self, text: &str, settings: &mut Settings) -> Result<(), String> {
        let (s, text) = (&mut settings.sampling, text.trim());
        match self {
            Field::Temperature => s.temperature = real(text, 0.0, 5.0)?,
            Field::TopK => s.top_k = whole(text, 0, u64::from(u32::MAX))?.try_into().unwrap_or(u32::MAX),
            Field::TopP => s.top_p = real(text, 0.01, 1.0)?,
            Field::MinP => s.min_p = real(text, 0.0, 1.0)?,
            Field::RepetitionPenalty => s.repetition_penalty = real(text, 0.5, 2.0)?,
            Field::Seed => s.seed = whole(text, 0, u64::MAX)?,
            Field::MaxTokens => settings.max_tokens = size(text, 1)?,
            Field::ContextCap if text.is_empty() => settings.context_cap = None,
            Field::ContextCap => settings.context_cap = Some(size(text, 128)?),
            // The decode step needs a block in VRAM; the other tiers may be empty.
            Field::VramBudget => settings.budgets.vram = bytes(text, 1)?,
            Field::RamBudget => settings.budgets.ram = bytes(text, 0)?,
            Field::DiskBudget => settings.budgets.disk = bytes(text, 0)?,
        }
        Ok(())
    }
}

fn real(text: &str, min: f32, max: f32) -> Result<f32, String> {
    let wrong = || format!("Type a number between {min} and {max}.");
    let value: f32 = text.replace(',', ".").parse().map_err(|_| wrong())?;
    if (min..=max).contains(&value) { Ok(value) } else { Err(wrong()) }
}

fn whole(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let wrong = || match max {
        u64::MAX => format!("Type a whole number, {min} or more."),
        _ => format!("Type a whole number between {min} and {max}."),
    };
    let value: u64 = text.parse().map_err(|_| wrong())?;
    if (min..=max).contains(&value) { Ok(value) } else { Err(wrong()) }
}

/// A size as it would be typed, to the byte: in the largest unit that divides it.
fn typed(size: Option<Bytes>) -> String {
    let Some(Bytes(n)) = size else { return String::new() };
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| n > 0 && n.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", n / unit),
        None => n.to_string(),
    }
}

fn bytes(text: &str, min: u64) -> Result<Option<Bytes>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || "Type a size such as 64MiB, 2GiB or 1.5GB, or nothing.".to_owned();
    let size: Bytes = text.parse().map_err(|_| wrong())?;
    if size.0 >= min { Ok(Some(size)) } else { Err(wrong()) }
}

fn size(text: &str, min: u64) -> Result<usize, String> {
    Ok(usize::try_from(whole(text, min, limits::MAX_CONTEXT as u64)?).unwrap_or(limits::MAX_CONTEXT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_good_settings_gives_them_back() {
        let good = Settings {
            sampling: Sampling { temperature: 0.7, top_k: 20, top_p: 0.9, min_p: 0.1, repetition_penalty: 1.1, seed: 42 },
            max_tokens: 99,
            context_cap: Some(4096),
            budgets: Tiers { vram: Some(Bytes(3 << 29)), ram: Some(Bytes(0)), disk: Some(Bytes(1_500_000_001)) },
            kv_dtype: KvDtype::F16,
            policy: None,
            keep_read: true,
            reuse_anywhere: false,
            theme: ThemeChoice::Dark,
            zoom: 1.0,
        };
        let mut got = Settings { theme: ThemeChoice::Dark, ..Settings::default() };
        let mut form = Form::of(&good);
        form.check(&mut got);
        assert_eq!(got, good);
        assert_eq!(form.errors, <[Option<String>; FIELDS.len()]>::default());
    }

    #[test]
    fn wrong_field_keeps_the_last_value_and_shows_what_to_type() {
        let mut settings = Settings::default();
        for (i, wrong) in ["-1", "many", "1.5", "2", "9", "-3", "0", "12", "0", "much", "-1GiB"].iter().enumerate() {
            let before = settings;
            let mut form = Form::of(&settings);
            form.texts[i] = (*wrong).to_owned();
            form.check(&mut settings);
            assert_eq!(settings, before, "{:?}", FIELDS[i]);
            let sentence = form.errors[i].clone().unwrap_or_default();
            assert!(sentence.starts_with("Type a"), "{:?}: {sentence}", FIELDS[i]);
        }
    }

    #[test]
    fn decimal_comma_is_understood() {
        let mut settings = Settings::default();
        let mut form = Form::of(&settings);
        form.texts[0] = "0,5".to_owned();
        form.check(&mut settings);
        assert_eq!(settings.sampling.temperature, 0.5);
    }
}
