//! Notices: sentences for the user, each shown until it is dismissed.
//!
//! Invariant: a sentence is in the list once.

/// A sentence that is shown until it is dismissed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// what happened, and what to do
    pub text: String,
    /// something went wrong
    pub error: bool,
}

/// All notices that are not dismissed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notices {
    list: Vec<Notice>,
    is_open: bool,
}

impl Notices {
    /// Oldest first.
    pub fn list(&self) -> &[Notice] {
        &self.list
    }

    /// The last one that was added.
    pub fn newest(&self) -> Option<&Notice> {
        self.list.last()
    }

    /// The whole list is shown, not only the newest.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Adds a notice; one that is there already becomes the newest.
    pub fn add(&mut self, notice: Notice) {
        self.list.retain(|n| *n != notice);
        self.list.push(notice);
    }

    /// Opens the list, or closes it.
    pub fn toggle(&mut self) {
        self.is_open = !self.is_open && !self.list.is_empty();
    }

    /// Removes the notice at `index` of [`Notices::list`].
    pub fn dismiss(&mut self, index: usize) {
        if index < self.list.len() {
            self.list.remove(index);
        }
        self.is_open &= !self.list.is_empty();
    }

    /// Removes all notices.
    pub fn dismiss_all(&mut self) {
        *self = Notices::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> Notice {
        Notice { text: text.to_owned(), error: false }
    }

    #[test]
    fn repeated_notice_is_listed_once_as_the_newest() {
        let mut notices = Notices::default();
        ["one", "two", "one"].into_iter().for_each(|text| notices.add(notice(text)));
        assert_eq!(notices.list(), [notice("two"), notice("one")]);
        assert_eq!(notices.newest(), Some(&notice("one")));
    }

    #[test]
    fn list_closes_with_its_last_notice() {
        let mut notices = Notices::default();
        notices.toggle();
        assert!(!notices.is_open(), "there is nothing to open");
        notices.add(notice("one"));
        notices.toggle();
        notices.dismiss(7);
        assert!(notices.is_open());
        notices.dismiss(0);
        assert!(!notices.is_open() && notices.newest().is_none());
    }
}
