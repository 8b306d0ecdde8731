//! The engine: a worker thread that owns the compute device, the model and the KV cache.

mod command;
mod handle;
mod sampler;

pub use command::*;
pub use handle::{EngineHandle, EnginePort, StopWatch};

/// Starts the worker. `wake` is called after every event.
pub fn spawn(wake: impl Fn() + Send + 'static) -> EngineHandle {
    let (handle, port) = EngineHandle::pair(wake);
    std::thread::spawn(move || {
        while let Ok(command) = port.commands.recv() {
            if let EngineCommand::LoadModel { .. } = command {
                port.emit(EngineEvent::ModelFailed("this build has no engine".to_owned()));
            }
        }
    });
    handle
}
