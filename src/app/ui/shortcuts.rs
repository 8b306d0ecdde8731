//! Keyboard shortcuts: all keys of the window, for its handlers and for the help page.
//!
//! ```text
//! Shortcut { keys, what } ─┬─► consume, is_pressed: the window, the composer, the lists, the dashboard
//!                          └─► PLACES ─► panels::help
//! ```
//! Invariant: no other file of the window names a key, so that every key is listed; a test reads the files.

use egui::gui_zoom::kb_shortcuts;
use egui::{Context, InputState, Key, KeyboardShortcut, Modifiers, Ui};

/// Keys with one function.
#[derive(Debug, Clone, Copy)]
pub struct Shortcut {
    /// any of these keys
    pub keys: &'static [KeyboardShortcut],
    /// description
    pub what: &'static str,
}

const fn key(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::NONE, key)
}

const fn ctrl(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::COMMAND, key)
}

const fn shift(key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(Modifiers::SHIFT, key)
}

macro_rules! shortcuts {
    ($($name:ident = [$($key:expr),+], $what:literal;)+) => {
        $(#[doc = $what] pub const $name: Shortcut = Shortcut { keys: &[$($key),+], what: $what };)+
    };
}

shortcuts! {
    NEW_CHAT = [ctrl(Key::N)], "new chat";
    OPEN = [ctrl(Key::O)], "open a document";
    SEARCH = [ctrl(Key::F)], "search the chats";
    QUESTION = [ctrl(Key::L)], "go to the question";
    DOCK = [ctrl(Key::D)], "the dashboard, beside the chat";
    MODELS = [ctrl(Key::M)], "the models on this machine";
    SETTINGS = [ctrl(Key::Comma)], "settings";
    HELP = [key(Key::F1)], "this page";
    LEAVE = [key(Key::Escape)], "leave a page or a field; stop reading or answering";
    LARGER = [kb_shortcuts::ZOOM_IN, kb_shortcuts::ZOOM_IN_SECONDARY], "larger";
    SMALLER = [kb_shortcuts::ZOOM_OUT], "smaller";
    AS_DESKTOP = [kb_shortcuts::ZOOM_RESET], "scale of the desktop";
    GO_ROUND = [key(Key::Tab), shift(Key::Tab)], "next or previous control";
    SEND = [key(Key::Enter)], "send the question, take what is typed, or find the next place in a document";
    FIND_BACK = [shift(Key::Enter)], "find the place before it";
    LINE_BREAK = [shift(Key::Enter)], "break the line";
    ZOOM_IN = [key(Key::Plus), key(Key::Equals)], "zoom in";
    ZOOM_OUT = [key(Key::Minus)], "zoom out";
    EARLIER = [key(Key::ArrowLeft)], "earlier";
    LATER = [key(Key::ArrowRight)], "later";
    MEASURE_LESS = [shift(Key::ArrowLeft)], "measure less";
    MEASURE_MORE = [shift(Key::ArrowRight)], "measure a span of time";
    STEP_BEFORE = [key(Key::ArrowUp)], "the step before";
    STEP_AFTER = [key(Key::ArrowDown)], "the step after";
    TAKE_STEP = [key(Key::Enter)], "the step in the middle";
    PAUSE = [key(Key::Space)], "pause or follow";
    NEWEST = [key(Key::End)], "follow the newest";
    WHOLE_RUN = [key(Key::Home)], "all of the run";
    WHOLE_MAP = [key(Key::Num0)], "all pages";
    MAP_LEFT = [key(Key::ArrowLeft)], "the page before";
    MAP_RIGHT = [key(Key::ArrowRight)], "the page after";
    MAP_UP = [key(Key::ArrowUp)], "the layer above";
    MAP_DOWN = [key(Key::ArrowDown)], "the layer below";
    READ_PAGE = [key(Key::Enter)], "read the page";
    TOKEN_BEFORE = [key(Key::ArrowLeft)], "the token before";
    TOKEN_AFTER = [key(Key::ArrowRight)], "the token after";
}

/// All shortcuts, by place.
pub const PLACES: [(&str, &[Shortcut]); 5] = [
    (
        "Everywhere",
        &[NEW_CHAT, OPEN, SEARCH, QUESTION, DOCK, MODELS, SETTINGS, HELP, LEAVE, LARGER, SMALLER, AS_DESKTOP, GO_ROUND],
    ),
    ("Where something is typed", &[SEND, LINE_BREAK, FIND_BACK]),
    (
        "On the timeline",
        &[
            ZOOM_IN,
            ZOOM_OUT,
            EARLIER,
            LATER,
            MEASURE_MORE,
            MEASURE_LESS,
            STEP_BEFORE,
            STEP_AFTER,
            TAKE_STEP,
            PAUSE,
            NEWEST,
            WHOLE_RUN,
        ],
    ),
    ("On the KV map", &[ZOOM_IN, ZOOM_OUT, WHOLE_MAP, MAP_LEFT, MAP_RIGHT, MAP_UP, MAP_DOWN, READ_PAGE]),
    ("On the tokens of an answer", &[TOKEN_BEFORE, TOKEN_AFTER]),
];

impl Shortcut {
    /// The first key.
    pub const fn first(&self) -> KeyboardShortcut {
        self.keys[0]
    }

    /// True if one of the keys is pressed in this frame. Other handlers do not see it.
    pub fn consume(&self, ctx: &Context) -> bool {
        ctx.input_mut(|i| self.keys.iter().any(|key| i.consume_shortcut(key)))
    }

    /// True if one of the keys is pressed in this frame.
    pub fn is_pressed(&self, ui: &Ui) -> bool {
        ui.input(|i| self.is_in(i))
    }

    /// True if one of the keys is pressed in `input`.
    pub fn is_in(&self, input: &InputState) -> bool {
        self.keys.iter().any(|key| input.key_pressed(key.logical_key) && input.modifiers.matches_logically(key.modifiers))
    }

    /// Names of the keys: `Ctrl+N`.
    pub fn names(&self, ctx: &Context) -> String {
        let name = |key| ctx.format_shortcut(key).replace("Escape", "Esc").replace("Comma", ",").replace("Equals", "=");
        self.keys.iter().map(name).collect::<Vec<String>>().join(" or ")
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn no_file_of_the_window_but_this_one_names_a_key() {
        let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/app");
        for path in sources(&app).iter().filter(|path| !path.ends_with("shortcuts.rs")) {
            let text = std::fs::read_to_string(path).unwrap();
            let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
            assert!(!shipped.contains("Key::"), "{} names a key: bind it in shortcuts.rs", path.display());
        }
    }

    #[test]
    fn keys_of_a_place_do_one_thing_each() {
        for (place, shortcuts) in PLACES {
            let keys: Vec<String> = shortcuts.iter().flat_map(|s| s.keys).map(|key| format!("{key:?}")).collect();
            for (i, key) in keys.iter().enumerate() {
                let twice = keys.iter().skip(i + 1).any(|other| other == key);
                assert!(!twice || place == "Where something is typed", "{place}: {key}");
            }
        }
    }
}
