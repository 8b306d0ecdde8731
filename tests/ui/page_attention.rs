//! Pages most read by an answer, beside the document: the list, its links, and the reason if there is none.

use egui_kittest::kittest::{NodeT, Queryable};
use strata::app::state::settings::ThemeChoice;
use strata::engine::{
    AttentionKind, EngineEvent, PageAttention, Phases, PolicySpec, RequestSummary, SelectionBudget, StopReason,
};

use crate::dashboard::Real;
use crate::mock_engine::{Rig, summary};

/// Pages with a form feed between them.
const PAGED: &str = "The keeper lit the lamp.\u{0C}The harbour was built in stone, in 1704.\u{0C}Nothing else is known of it.";

/// An answer whose attention fell on these bytes, from 0 on, in these shares.
fn answered(rig: &mut Rig, question: &str, fell_on: Option<(&[f32], &[u32])>, attention: AttentionKind) {
    let request = rig.ask(question);
    rig.emit(EngineEvent::RequestStarted { request, prompt_tokens: 400, cached_tokens: 0 });
    rig.emit(EngineEvent::Token { request, text: "In 1704.".into(), n: 30, tokens_per_s: 31.2, context_used: 430 });
    if let Some((mass, first_byte)) = fell_on {
        let page_attention = PageAttention { n_steps: 3, mass: mass.to_vec(), first_byte: first_byte.to_vec() };
        rig.emit(EngineEvent::PageAttention { request, page_attention: Box::new(page_attention) });
    }
    let phases = Phases { began_ns: 1, ended_ns: 2, ..Phases::default() };
    let summary = RequestSummary { attention, phases, ..summary(430, 30, StopReason::Eos) };
    rig.emit(EngineEvent::Finished { request, summary: Box::new(summary) });
}

fn with_document() -> Rig {
    let mut rig = Rig::ready();
    rig.drop_text("harbour.txt", PAGED);
    rig
}

fn show(rig: &mut Rig) {
    rig.click("More about this answer");
    rig.click("Pages most read");
}

#[test]
fn pages_most_read_are_listed_and_lead_to_their_pages() {
    let mut rig = with_document();
    // A tenth on page 1, seven on page 2; the rest is the question's.
    answered(&mut rig, "When was it built?", Some((&[0.1, 0.7, 0.2], &[0, 25, 66, 120])), AttentionKind::Dense);
    show(&mut rig);
    assert!(rig.shows("The harbour was built in stone"), "the page that was read most is open");
    assert!(
        rig.shows("for \u{201C}When was it built?\u{201D}") && rig.shows("at 3 of 30 tokens of the answer. Every page was read.")
    );
    let lines: Vec<String> =
        rig.harness.query_all_by_label_contains("Read most: ").filter_map(|n| n.accesskit_node().label()).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("Read most: page 2 of harbour.txt, 7"), "{lines:?}");
    let first = lines.iter().find(|line| line.contains("page 1 ")).unwrap().clone();
    rig.click(&first);
    assert!(rig.shows("The keeper lit the lamp."));
    rig.harness.snapshot("most_read_dark");
}

#[test]
fn document_that_is_opened_shows_what_the_last_answer_read() {
    let mut rig = with_document();
    answered(&mut rig, "One?", Some((&[1.0], &[0, 20])), AttentionKind::Dense);
    answered(&mut rig, "Two?", Some((&[1.0], &[30, 50])), AttentionKind::Selective);
    let chip = rig.harness.query_all_by_label_contains("harbour.txt, 31 tokens").next().unwrap();
    chip.click();
    rig.harness.run();
    assert!(rig.shows("for \u{201C}Two?\u{201D}") && rig.shows("Read most: page 2 of harbour.txt, 100 %"));
}

#[test]
fn answer_whose_attention_was_not_measured_shows_why() {
    let why = [
        (AttentionKind::ExactOffload, "Exact attention read every page. The pages most read are not measured if pages are"),
        (AttentionKind::Dense, "Exact attention read every page. The pages most read were not measured"),
        (AttentionKind::Selective, "The pages most read were not measured: the answer is too short."),
    ];
    for (attention, sentence) in why {
        let mut rig = with_document();
        answered(&mut rig, "One?", None, attention);
        show(&mut rig);
        assert!(rig.shows(sentence), "{attention:?}");
        assert!(rig.shows("The keeper lit the lamp."), "the document is open all the same");
    }
}

#[test]
fn real_answer_read_the_page_of_its_fact_most() {
    let spec = PolicySpec { amount: SelectionBudget::Rate(0.1), is_forced: true, ..PolicySpec::default() };
    let Some(mut real) = Real::start(ThemeChoice::Dark, Some(spec)) else { return };
    real.ask("What is the current temperature for Reribe?");
    let state = &real.harness.state().state;
    let document = &state.documents.list[0];
    let page = document.page_of(document.text.find("temperature for Reribe").unwrap());
    let read = state.chat().exchanges[0].attended_pages.clone().unwrap();
    let rank = read.pages.iter().position(|p| p.page == page);
    assert!(rank.is_some_and(|rank| rank < 2), "page {page}: {read:?}");
    let shares: f32 = read.pages.iter().map(|p| p.share).sum();
    assert!(shares <= 1.0 + 1e-3 && read.pages.is_sorted_by(|a, b| a.share >= b.share), "{read:?}");
    for label in ["More about this answer", "Pages most read"] {
        real.harness.get_by_label(label).click();
        (0..4).for_each(|_| real.harness.step());
    }
    let open = real.harness.state().state.documents.viewer.clone().unwrap();
    assert_eq!((open.doc, open.page), (read.pages[0].doc, read.pages[0].page));
    assert!(real.harness.query_all_by_label_contains("Read most: page ").count() >= 2);
    real.shot("most-read");
}
