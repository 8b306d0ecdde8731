//! Ctrl-C: the first one ends the turn that runs, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a process that Ctrl-C ended, as shells expect it.
const EXIT_INTERRUPTED: i32 = 130;

/// Whether the person pressed Ctrl-C.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for Ctrl-C (and a polite kill) from now on. Where that is not possible, Ctrl-C ends the process.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt::default();
        let flag = interrupt.clone();
        // A handler that is already there keeps working: nothing is lost but the polite stop.
        let _ = ctrlc::set_handler(move || {
            if flag.0.swap(true, Ordering::AcqRel) {
                std::process::exit(EXIT_INTERRUPTED);
            }
        });
        interrupt
    }

    /// Ctrl-C was pressed.
    pub fn pressed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// As if Ctrl-C had been pressed.
    #[cfg(test)]
    pub fn press(&self) {
        self.0.store(true, Ordering::Release);
    }
}
