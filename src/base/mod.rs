//! Units, model dimensions, limits and the seeded generator: plain data that every other module may use. No I/O.

mod dims;
pub mod limits;
mod rng;
mod tiers;
mod units;

pub use dims::{DimsError, ModelDims};
pub use rng::Rng;
pub use tiers::{LinkLimits, MovedBytes, PageCounts, ParseLinkLimitsError, Tiers};
pub use units::{Bytes, ParseBytesError};
