//! Exports of the window: the metadata of a saved trace, and the newest answer as a row of a benchmark table.

use crate::app::panels::model_name;
use crate::app::state::ViewState;
use crate::app::state::chat::Outcome;
use crate::engine::RequestSummary;
use crate::engine::measure::bench_table;
use crate::telemetry::chrome_trace::{QuestionAnswer, RunInfo};

impl ViewState {
    /// Metadata for a trace of this session; with questions and answers of the current chat only if `with_text`.
    pub fn run_info(&self, with_text: bool) -> RunInfo {
        let policy = self.engine.load.policy.map_or_else(|| "everything".to_owned(), |spec| spec.kind.to_string());
        let exchanges = self.chat().exchanges.iter().filter(|_| with_text);
        let text = exchanges.map(|e| QuestionAnswer { question: e.question.clone(), answer: e.answer.clone() }).collect();
        RunInfo {
            strata: env!("CARGO_PKG_VERSION").to_owned(),
            model: model_name(&self.engine.model, &self.engine.source),
            adapter: self.info().map(|info| info.adapter.clone()).unwrap_or_default(),
            policy: format!("{policy}, {}", self.engine.load.kv_dtype.name()),
            text,
        }
    }

    /// The newest answer that was finished, as `strata bench` prints speeds.
    pub fn bench_table(&self) -> Option<String> {
        Some(bench_table::of_answer(self.info()?, self.newest_summary()?))
    }

    fn newest_summary(&self) -> Option<&RequestSummary> {
        self.chat().exchanges.iter().rev().find_map(|exchange| match &exchange.outcome {
            Outcome::Done(summary) => Some(summary.as_ref()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::ModelState;
    use crate::app::state::chat::Exchange as Asked;
    use crate::app::test_support::{model_info, summary};
    use crate::engine::{LoadOptions, ModelSource};

    fn answered() -> ViewState {
        let mut state = ViewState::new(ModelSource::BuiltIn, LoadOptions::default());
        state.engine.model = ModelState::Ready(Box::new(model_info()));
        let question = "Where did it begin?".to_owned();
        let outcome = Outcome::Done(Box::new(summary()));
        let answer = "In Pudding Lane.".to_owned();
        state.chat_mut().exchanges.push(Asked { answer, outcome, ..Asked::new(1, question) });
        state
    }

    #[test]
    fn run_info_holds_text_only_where_it_was_asked_for() {
        let state = answered();
        let without = format!("{:?}", state.run_info(false));
        assert!(!without.contains("Pudding") && !without.contains("begin"), "{without}");
        assert_eq!(state.run_info(false).model, "Strata Quote");
        assert_eq!(state.run_info(true).text[0].answer, "In Pudding Lane.");
    }

    #[test]
    fn bench_table_has_the_numbers_of_the_answer() {
        let table = answered().bench_table().unwrap();
        let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        assert!(widths.windows(2).all(|w| w[0] == w[1]), "{table}");
        // 60 of 100 tokens were read in 120 ms; 19 of 20 were made by decoding.
        assert!(table.contains("pp60 @ d40") && table.contains("500.00 ± 0.00"), "{table}");
        assert!(table.contains("tg19 @ d100") && table.contains("22.00 ± 0.00") && table.contains("0.300"), "{table}");
        let empty = ViewState::new(ModelSource::BuiltIn, LoadOptions::default());
        assert_eq!(empty.bench_table(), None);
    }
}
