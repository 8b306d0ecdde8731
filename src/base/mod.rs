//! Plain data for every other module: units, model dimensions, limits, tiers and the seeded generator. No I/O.

mod dims;
pub mod limits;
mod rng;
mod tiers;
mod units;

pub use dims::{DimsError, ModelDims};
pub use rng::Rng;
pub use tiers::{LinkLimits, MovedBytes, PageCounts, ParseLinkLimitsError, Tiers};
pub use units::{Bytes, ParseBytesError};
