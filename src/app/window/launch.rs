//! Launch: single instance, log, window and its place on the screen, icon.
//!
//! ```text
//! run ─► claim ─┬─ taken ─► hand the documents over, done
//!               └─ alone ─► log ─► eframe (window.ron: size and place) ─► StrataApp
//! ```

use eframe::egui;
use egui::ViewportBuilder;

use crate::app::persist::logging;
use crate::app::ui::theme;
use crate::app::window::StrataApp;
use crate::app::window::options::{Wake, WindowOptions};
use crate::app::window::settings_sync::restore_dock;
use crate::app::window::single_instance::{self, Claim};
use crate::engine::EngineHandle;

/// Name of the desktop file.
pub const APP_ID: &str = "io.github.strata_reader.Strata";
/// Size and place of the window, in the state folder.
const WINDOW_FILE: &str = "window.ron";

/// The window could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// no display server to open it on
    #[error("there is no display to open the window on; start it from a desktop session, or use `strata ask` without a window")]
    NoDisplay,
    /// another process has the chats and the library, and does not take the documents
    #[error("Strata is open already; use its window, or close it first")]
    AlreadyOpen,
    /// the window system or the driver refused
    #[error(
        "the window could not be opened ({0}); check that a display and a Vulkan, Metal or DX12 driver are there (on Debian: \
         apt install mesa-vulkan-drivers libxkbcommon-x11-0), or use `strata ask` without a window"
    )]
    Refused(String),
}

/// Opens the window and returns when it is closed. If a window is open, hands it the documents.
///
/// # Errors
/// No display, or no driver for it.
pub fn run(mut options: WindowOptions, spawn: impl FnOnce(Wake) -> EngineHandle + 'static) -> Result<(), WindowError> {
    let display = ["WAYLAND_DISPLAY", "WAYLAND_SOCKET", "DISPLAY"];
    if cfg!(all(unix, not(target_os = "macos"))) && display.iter().all(|v| std::env::var_os(v).is_none_or(|v| v.is_empty())) {
        return Err(WindowError::NoDisplay);
    }
    // Held until this function returns.
    let _alone = match options.folders.data.as_deref().map(single_instance::claim) {
        Some(Claim::Taken) => return hand_over(&options),
        Some(Claim::Alone(lock, inbox)) => {
            options.handed_over = Some(inbox);
            Some(lock)
        }
        // No other process can use a folder that is not writable.
        Some(Claim::Impossible) | None => None,
    };
    if let Some(state) = &options.folders.state {
        logging::start(state);
    }
    log::info!("Strata {} on {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    let viewport = ViewportBuilder::default()
        .with_title("Strata")
        .with_app_id(APP_ID)
        .with_inner_size([1280.0, 800.0])
        .with_min_inner_size([760.0, 480.0])
        .with_drag_and_drop(true)
        .with_icon(app_icon());
    let native = eframe::NativeOptions {
        viewport,
        renderer: eframe::Renderer::Wgpu,
        persist_window: true,
        persistence_path: options.folders.state.as_ref().map(|state| state.join(WINDOW_FILE)),
        ..Default::default()
    };
    let create: eframe::AppCreator<'_> = Box::new(move |cc| {
        let mut app = StrataApp::new(&cc.egui_ctx, options, Box::new(spawn));
        cc.storage.into_iter().for_each(|storage| restore_dock(&mut app.dashboard, storage));
        Ok(Box::new(app))
    });
    let closed = eframe::run_native("Strata", native, create).map_err(|e| WindowError::Refused(e.to_string()));
    log::info!("closed");
    closed
}

fn hand_over(options: &WindowOptions) -> Result<(), WindowError> {
    let sent = options.folders.data.as_deref().is_some_and(|data| single_instance::hand_over(data, &options.documents).is_ok());
    if sent { Ok(()) } else { Err(WindowError::AlreadyOpen) }
}

/// Three strata, 64 by 64.
fn app_icon() -> egui::IconData {
    const SIDE: usize = 64;
    let t = theme::of(true);
    let mut rgba = vec![0; SIDE * SIDE * 4];
    for (i, pixel) in rgba.chunks_exact_mut(4).enumerate() {
        let (x, y) = (i % SIDE, i / SIDE);
        let color = [t.accent, t.vram, t.ram][(y.saturating_sub(8) / 18).min(2)];
        let inside = (6..58).contains(&x) && (8..56).contains(&y) && (y - 8) % 18 < 14;
        pixel.copy_from_slice(&if inside { color.to_array() } else { [0; 4] });
    }
    egui::IconData { rgba, width: SIDE as u32, height: SIDE as u32 }
}
