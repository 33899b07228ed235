//! Quantities as types: inside the host, every number carries its unit.
//!
//! All units are SI. Only `report` formats quantities as text (`1.2 GiB`, `45.3%`).

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($(#[$attribute:meta])* $inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name($(#[$attribute])* pub $inner);
    };
}

quantity! {
    /// A span of time, in seconds.
    Seconds(#[serde(deserialize_with = "null_is_nan")] #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))] f64)
}
quantity! {
    /// An amount of memory, in bytes.
    #[derive(Eq)]
    Bytes(u64)
}
quantity! {
    /// Samples processed per second.
    SamplesPerSecond(#[serde(deserialize_with = "null_is_nan")] #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))] f64)
}
quantity! {
    /// Floating-point operations per second; a multiply-add counts as two.
    FlopsPerSecond(#[serde(deserialize_with = "null_is_nan")] #[cfg_attr(feature = "testing", schemars(with = "Option<f64>"))] f64)
}

/// Reads a JSON number, or null as NaN: JSON has neither NaN nor infinity, so both are written as null.
///
/// # Errors
/// Fails when the value is neither a number nor null.
pub fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|value| value.unwrap_or(f64::NAN))
}

/// Reads a map of numbers by name; a null becomes NaN, as in [`null_is_nan`].
///
/// # Errors
/// Fails when a value is neither a number nor null.
pub fn nulls_are_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IndexMap<String, f64>, D::Error> {
    let values = IndexMap::<String, Option<f64>>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect())
}

/// Reads a list of numbers; a null becomes NaN, as in [`null_is_nan`].
///
/// # Errors
/// Fails when an element is neither a number nor null.
pub fn null_items_are_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let values = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}

impl Seconds {
    /// Converts a difference of two monotonic times in nanoseconds.
    pub fn from_nanos(nanos: u64) -> Self {
        Seconds(nanos as f64 / 1e9)
    }
}

impl std::ops::Add for Seconds {
    type Output = Seconds;
    fn add(self, other: Seconds) -> Seconds {
        Seconds(self.0 + other.0)
    }
}

impl std::ops::Sub for Seconds {
    type Output = Seconds;
    fn sub(self, other: Seconds) -> Seconds {
        Seconds(self.0 - other.0)
    }
}

impl std::iter::Sum for Seconds {
    fn sum<I: Iterator<Item = Seconds>>(iter: I) -> Seconds {
        Seconds(iter.map(|s| s.0).sum())
    }
}

impl SamplesPerSecond {
    /// Returns the throughput of `samples` processed in `time`; `None` when no time passed.
    pub fn of(samples: u64, time: Seconds) -> Option<Self> {
        (time.0 > 0.0).then(|| SamplesPerSecond(samples as f64 / time.0))
    }
}
