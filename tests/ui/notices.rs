//! Notices above the chat: one line with a count, a list that scrolls, and the conversation whole below them.

use egui::Rect;
use egui_kittest::kittest::{NodeT, Queryable};
use strata::app::state::settings::ThemeChoice;
use strata::engine::EngineEvent;

use crate::mock_engine::{Rig, Setup};

/// An answered chat with `n` long notices.
fn with_notices(n: usize, theme: ThemeChoice) -> Rig {
    let mut rig = Rig::ready_with(Setup { size: [900.0, 600.0], theme, ..Setup::default() });
    rig.drop_text("pepys-diary.txt", &"Up betimes. ".repeat(400));
    let request = rig.ask("What burned first?");
    rig.answer(request, "The house of the King's baker in Pudding Lane.");
    for i in 1..=n {
        rig.emit(EngineEvent::Notice(format!(
            "Notice {i}: {}",
            "saved KV could not be read from disk; check the disk. ".repeat(8)
        )));
    }
    rig.harness.remove_cursor();
    rig.harness.run();
    rig
}

fn rect_of(rig: &Rig, label: &str) -> Rect {
    rig.harness.query_all_by_label_contains(label).next().unwrap_or_else(|| panic!("no {label}")).rect()
}

/// The last answer and the composer are whole, and `notices` covers neither.
fn assert_whole(rig: &Rig, notices: Rect) {
    let window = rig.harness.ctx.content_rect();
    for label in ["The house of the King's baker", "Question", "Send"] {
        let rect = rect_of(rig, label);
        assert!(window.contains_rect(rect), "{label} at {rect:?}");
        assert!(!notices.intersects(rect), "{label} at {rect:?} below {notices:?}");
        assert!(notices.bottom() <= rect.top(), "{label} at {rect:?} above {notices:?}");
    }
}

#[test]
fn twenty_long_notices_leave_answer_and_composer_whole() {
    let mut rig = with_notices(20, ThemeChoice::Dark);
    let line = rect_of(&rig, "20 notices, newest: Notice 20: ");
    assert!(line.height() <= 32.0, "one line: {line:?}");
    assert!(!rig.shows("Dismiss notice"), "the list is closed");
    assert_whole(&rig, line);
    rig.harness.get_by_label_contains("20 notices, newest").click();
    rig.harness.run();
    let header = rect_of(&rig, "Close the list of notices");
    let rows: Vec<Rect> = rig.harness.query_all_by_label_contains("Dismiss notice").map(|node| node.rect()).collect();
    assert!(rows.len() >= 2 && rig.shows("Notice 20: "), "newest first: {rows:?}");
    let chat = rect_of(&rig, "The house of the King's baker");
    // The list scrolls: what is below its end is not drawn over the conversation.
    assert!(chat.top() - header.bottom() < 260.0, "{header:?} {chat:?}");
    assert_whole(&rig, header.with_max_y(header.bottom() + 100.0));
    rig.harness.snapshot("notices_dark");
}

#[test]
fn list_of_notices_scrolls_to_the_oldest() {
    let mut rig = with_notices(20, ThemeChoice::Light);
    rig.harness.get_by_label_contains("20 notices, newest").click();
    rig.harness.run();
    let header = rect_of(&rig, "Close the list of notices");
    let window = rig.harness.ctx.content_rect();
    let first = |rig: &Rig| rig.harness.query_by_label("Dismiss notice 1").map(|node| node.rect());
    let before = first(&rig).unwrap();
    let over = egui::pos2(header.center().x, header.bottom() + 40.0);
    rig.harness.hover_at(over);
    rig.harness.run();
    let wheel = egui::Event::MouseWheel {
        unit: egui::MouseWheelUnit::Point,
        delta: egui::vec2(0.0, -5000.0),
        modifiers: egui::Modifiers::NONE,
        phase: egui::TouchPhase::Move,
        source: egui::MouseWheelSource::Unknown,
    };
    rig.harness.event(wheel);
    (0..40).for_each(|_| rig.harness.step());
    let last = rig.harness.get_by_label("Dismiss notice 20").rect();
    assert!(window.contains_rect(last) && last.bottom() <= header.bottom() + 180.0, "{last:?}");
    assert!(first(&rig).is_none_or(|rect| rect.top() < before.top()), "the newest has scrolled away");
    rig.harness.get_by_label("Dismiss notice 20").click();
    rig.harness.run();
    assert!(!rig.harness.state().state.notices.list().iter().any(|notice| notice.text.starts_with("Notice 1: ")));
}

#[test]
fn notices_are_dismissed_one_by_one_and_all_at_once() {
    let mut rig = with_notices(3, ThemeChoice::Dark);
    rig.click("Dismiss");
    let newest = rig.harness.get_by_label_contains("2 notices, newest: Notice 2: ");
    assert!(newest.accesskit_node().label().is_some());
    newest.click();
    rig.harness.run();
    rig.click("Dismiss notice 2");
    assert_eq!(rig.harness.state().state.notices.list().len(), 1);
    assert!(rig.shows("Notice 2: "));
    rig.click("Dismiss all");
    assert!(!rig.shows("Notice 2: ") && !rig.shows("Dismiss"));
    rig.emit(EngineEvent::Notice("Another one.".into()));
    assert!(rig.harness.query_by_label("Another one.").is_some(), "one notice has no count");
    assert!(!rig.shows("Close the list of notices"), "a new notice does not open the list");
}

#[test]
fn refused_file_is_seen_at_the_end_of_a_long_chat() {
    let mut rig = Rig::ready();
    let request = rig.ask("Long?");
    rig.answer(request, &"A line of a long answer.\n\n".repeat(100));
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("picture.bin");
    std::fs::write(&bad, [0xff, 0xfe, 0x00, 0x81]).unwrap();
    rig.drop_files(&[bad]);
    let sentence = rect_of(&rig, "picture.bin");
    assert!(rig.harness.ctx.content_rect().contains_rect(sentence), "{sentence:?}");
}

#[test]
fn several_notices_match_their_snapshot() {
    with_notices(5, ThemeChoice::Light).harness.snapshot("notices_light");
}
