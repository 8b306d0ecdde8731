//! Ctrl-C: the first press cancels the running request, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a process ended by Ctrl-C, as shells expect.
const EXIT_INTERRUPTED: i32 = 130;

/// Flag that is set by Ctrl-C.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handler of Ctrl-C and SIGTERM. If that fails, Ctrl-C ends the process.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt::default();
        let flag = interrupt.clone();
        // An existing handler stays in place; then Ctrl-C only cannot cancel gently.
        let _ = ctrlc::set_handler(move || {
            if flag.0.swap(true, Ordering::AcqRel) {
                std::process::exit(EXIT_INTERRUPTED);
            }
        });
        interrupt
    }

    /// True if Ctrl-C was pressed.
    pub fn pressed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Simulates Ctrl-C.
    #[cfg(test)]
    pub fn press(&self) {
        self.0.store(true, Ordering::Release);
    }
}
