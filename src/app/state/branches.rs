//! Branches: a chat is a tree of questions and answers, and one path from root to leaf is shown.
//!
//! ```text
//! first question ─┬─ answer ── question ─┬─ answer     exchanges: the path that is shown
//!                 └─ answer             └─ answer     other_branches: all other exchanges
//! ```
//! Invariants: 1. Each exchange is in `exchanges` or in `other_branches`, once. 2. Each exchange shown is the parent of the next.
//! 3. A parent is older than its children: it has the smaller id.

use crate::app::state::chat::{Chat, Exchange};

/// The alternatives at one place of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternatives {
    /// one exchange of each, oldest first
    pub ids: Vec<u64>,
    /// index of the one that is shown
    pub here: usize,
}

impl Alternatives {
    /// True if there are several.
    pub fn is_choice(&self) -> bool {
        self.ids.len() > 1
    }

    /// The previous alternative.
    pub fn before(&self) -> Option<u64> {
        self.ids.get(self.here.checked_sub(1)?).copied()
    }

    /// The next alternative.
    pub fn after(&self) -> Option<u64> {
        self.ids.get(self.here + 1).copied()
    }
}

impl Chat {
    /// All exchanges, on any branch.
    pub fn all_exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().chain(&self.other_branches)
    }

    /// All exchanges, mutable.
    pub fn all_exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        self.exchanges.iter_mut().chain(&mut self.other_branches)
    }

    /// Alternatives to the question of `shown`; each by its newest answer.
    pub fn questions_beside(&self, shown: &Exchange) -> Alternatives {
        let beside = self.other_branches.iter().filter(|e| e.parent == shown.parent && e.question_id != shown.question_id);
        let mut ways: Vec<(u64, u64)> = beside.map(|e| (e.question_id, e.id)).collect();
        ways.push((shown.question_id, shown.id));
        // The newest answer of a question is the last of its kind.
        ways.sort_unstable();
        ways.reverse();
        ways.dedup_by_key(|(question, _)| *question);
        ways.reverse();
        let here = ways.iter().position(|(_, id)| *id == shown.id).unwrap_or(0);
        Alternatives { ids: ways.into_iter().map(|(_, id)| id).collect(), here }
    }

    /// Alternatives to the answer of `shown`.
    pub fn answers_beside(&self, shown: &Exchange) -> Alternatives {
        let beside = self.other_branches.iter().filter(|e| e.question_id == shown.question_id && e.parent == shown.parent);
        let mut ids: Vec<u64> = beside.map(|e| e.id).collect();
        ids.push(shown.id);
        ids.sort_unstable();
        let here = ids.iter().position(|id| *id == shown.id).unwrap_or(0);
        Alternatives { ids, here }
    }

    /// True if an exchange on another branch follows the last one shown.
    pub fn has_continuation(&self) -> bool {
        self.exchanges.last().is_some_and(|last| self.other_branches.iter().any(|e| e.parent == Some(last.id)))
    }

    /// Shows the branch through the exchange `id`, down to its newest leaf.
    pub fn show_branch(&mut self, id: u64) {
        let mut leaf = id;
        while let Some(child) = self.all_exchanges().filter(|e| e.parent == Some(leaf) && e.id > leaf).map(|e| e.id).max() {
            leaf = child;
        }
        self.show_until(leaf);
    }

    /// Shows the branch that ends with the exchange `leaf`. No change if there is no such exchange.
    pub fn show_until(&mut self, leaf: u64) {
        let mut way = Vec::new();
        let mut next = self.all_exchanges().find(|e| e.id == leaf);
        while let Some(exchange) = next {
            way.push(exchange.id);
            let parent = exchange.parent.filter(|parent| *parent < exchange.id);
            next = parent.and_then(|parent| self.all_exchanges().find(|e| e.id == parent));
        }
        if way.is_empty() {
            return;
        }
        way.reverse();
        let mut all = std::mem::take(&mut self.exchanges);
        all.append(&mut self.other_branches);
        (self.exchanges, self.other_branches) = all.into_iter().partition(|e| way.contains(&e.id));
        self.exchanges.sort_unstable_by_key(|e| e.id);
    }

    /// Hides the exchanges from number `index` on.
    pub fn cut(&mut self, index: usize) {
        let rest = self.exchanges.split_off(index.min(self.exchanges.len()));
        self.other_branches.extend(rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exchange(id: u64, question_id: u64, parent: Option<u64>) -> Exchange {
        Exchange { question_id, parent, ..Exchange::new(id, format!("question {question_id}")) }
    }

    fn shown(chat: &Chat) -> Vec<u64> {
        chat.exchanges.iter().map(|e| e.id).collect()
    }

    /// 2 ─ 4 (again: 6) ─ below 4: 8; another first question: 10.
    fn tree() -> Chat {
        let exchanges = vec![exchange(2, 1, None), exchange(4, 3, Some(2)), exchange(8, 7, Some(4))];
        let other_branches = vec![exchange(6, 3, Some(2)), exchange(10, 9, None)];
        Chat { exchanges, other_branches, ..Chat::default() }
    }

    #[test]
    fn alternatives_are_other_answers_and_other_questions() {
        let chat = tree();
        assert_eq!(chat.answers_beside(&chat.exchanges[1]), Alternatives { ids: vec![4, 6], here: 0 });
        assert_eq!(chat.questions_beside(&chat.exchanges[0]), Alternatives { ids: vec![2, 10], here: 0 });
        assert!(!chat.questions_beside(&chat.exchanges[1]).is_choice() && !chat.answers_beside(&chat.exchanges[2]).is_choice());
    }

    #[test]
    fn question_with_several_answers_is_one_alternative_shown_by_its_newest() {
        let mut chat = tree();
        chat.other_branches.extend([exchange(12, 9, None), exchange(14, 13, None)]);
        assert_eq!(chat.questions_beside(&chat.exchanges[0]).ids, [2, 12, 14]);
        chat.show_branch(12);
        let questions = chat.questions_beside(&chat.exchanges[0]);
        assert_eq!((questions.before(), questions.after()), (Some(2), Some(14)));
    }

    #[test]
    fn branch_is_shown_down_to_its_newest_exchange() {
        let mut chat = tree();
        chat.show_branch(6);
        assert_eq!(shown(&chat), [2, 6]);
        chat.show_branch(4);
        assert_eq!(shown(&chat), [2, 4, 8]);
        chat.show_branch(10);
        assert_eq!(shown(&chat), [10]);
        chat.show_until(4);
        assert_eq!(shown(&chat), [2, 4]);
        assert!(chat.has_continuation());
        chat.show_until(99);
        assert_eq!(shown(&chat), [2, 4]);
    }

    proptest! {
        #[test]
        fn every_exchange_stays_once_and_parents_stand_before_children(
            parents in proptest::collection::vec(proptest::option::of(0usize..20), 1..20),
            steps in proptest::collection::vec((any::<bool>(), 0usize..20), 0..20),
        ) {
            let id = |n: usize| 2 * n as u64 + 2;
            let mut chat = Chat::default();
            for (n, parent) in parents.iter().enumerate() {
                let parent = parent.filter(|p| *p < n).map(id);
                chat.other_branches.push(exchange(id(n), id(n) - 1, parent));
            }
            for (cuts, n) in steps {
                if cuts { chat.cut(n) } else { chat.show_branch(id(n)) }
                let mut all: Vec<u64> = chat.all_exchanges().map(|e| e.id).collect();
                all.sort_unstable();
                prop_assert_eq!(all, (0..parents.len()).map(id).collect::<Vec<_>>());
                let mut before = None;
                for e in &chat.exchanges {
                    prop_assert_eq!(e.parent, before);
                    before = Some(e.id);
                }
            }
        }
    }
}
