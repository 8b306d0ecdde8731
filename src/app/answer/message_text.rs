//! Engine messages in the words of the window: command-line flags become the names of settings. Pure.

use crate::app::state::settings::Field;

/// A flag, and the field of the settings page that replaces it.
const FLAGS: [(&str, Field); 5] = [
    ("--vram-budget", Field::VramBudget),
    ("--ram-budget", Field::RamBudget),
    ("--disk-budget", Field::DiskBudget),
    ("--context", Field::ContextCap),
    ("--max-tokens", Field::MaxTokens),
];
/// Flags that the settings page offers as a choice.
const CHOICES: [(&str, &str); 2] =
    [("--kv-dtype q4", "\u{201C}KV type\u{201D} q4"), ("--kv-policy full", "that \u{201C}Answers read\u{201D} everything")];
/// Flags without a setting: the environment variables that replace them.
const VARIABLES: [(&str, &str); 4] =
    [("--kv-dir", "STRATA_KV_DIR"), ("--gpu", "STRATA_GPU"), ("--trace", "STRATA_TRACE"), ("--rope-base", "STRATA_ROPE_BASE")];

/// The sentence with the names of settings in place of flags, and "in Settings" after the last of them.
pub fn in_window(sentence: &str) -> String {
    let mut out = sentence.to_owned();
    let named = FLAGS.iter().map(|(flag, field)| (*flag, format!("\u{201C}{}\u{201D}", field.label())));
    let settings: Vec<(&str, String)> = named.chain(CHOICES.map(|(flag, words)| (flag, words.to_owned()))).collect();
    let last = settings.iter().filter_map(|(flag, _)| Some(sentence.rfind(flag)? + flag.len())).max();
    if let Some(end) = last {
        out.insert_str(end, " in Settings");
    }
    let variables = VARIABLES.map(|(flag, words)| (flag, words.to_owned()));
    settings.into_iter().chain(variables).for_each(|(flag, words)| out = out.replace(flag, &words));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Bytes;
    use crate::kv::KvError;

    #[test]
    fn budget_that_is_too_small_names_the_setting_and_no_flag() {
        let error = KvError::VramTooSmall { least: Bytes(3 << 20), budget: Bytes(1 << 20) };
        let sentence = in_window(&error.to_string());
        assert!(sentence.ends_with("raise \u{201C}VRAM budget\u{201D} in Settings"), "{sentence}");
    }

    #[test]
    fn settings_are_pointed_to_once_after_the_last_of_them() {
        let said = "raise --ram-budget or --disk-budget, choose --kv-dtype q4, or shorten the document";
        let want = "raise \u{201C}RAM budget\u{201D} or \u{201C}Disk budget\u{201D}, choose \u{201C}KV type\u{201D} q4 in \
                    Settings, or shorten the document";
        assert_eq!(in_window(said), want);
        assert_eq!(in_window("choose another with --gpu"), "choose another with STRATA_GPU");
        assert_eq!(in_window("nothing is amiss"), "nothing is amiss");
    }
}
