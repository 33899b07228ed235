//! What is measured of a limit, and the limit that follows from it.

use flagperf_core::units::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

use super::exchange::{Exchange, ProcessTimes};
use super::exchange_figures::ExchangeFigures;
use super::figures::{DataSheet, OperatorFigures, Reason};
use super::times::OperatorTimes;

/// What is measured of a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitTimes {
    /// An operator in several sizes, of which the fastest counts.
    Operator(Vec<SizeTimes>),
    /// Copies of so many bytes.
    Transfers { device: String, device_name: Option<String>, bytes: Bytes, times_s: Vec<Seconds> },
    /// The bytes of all blocks that could be allocated at once.
    Capacity { device: String, device_name: Option<String>, bytes: Bytes },
    /// The means of tensors over these processes.
    AllReduce(Vec<ProcessTimes>),
    /// The tensors of the first of these processes, which the others get.
    Broadcast(Vec<ProcessTimes>),
}

/// A limit, from what was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitValue {
    /// The highest rate of operations or bytes per second, or the bytes.
    pub value: f64,
    /// The size that reached it, and the figures there, if it was measured by an operator.
    pub size: Option<usize>,
    pub figures: Option<OperatorFigures>,
    /// The bytes of the tensor that reached it, and the figures of each size, if it is that of several devices.
    pub bytes: Option<Bytes>,
    pub exchange: Vec<ExchangeFigures>,
    /// Why it does not count; empty if it does.
    pub reasons: Vec<Reason>,
}

/// The times of an operator in one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeTimes {
    /// The size of each dimension of a product, or the elements of a copy in units of 2^20.
    pub size: usize,
    /// The floating-point operations of a call, if they are counted.
    pub flops: Option<f64>,
    pub times: OperatorTimes,
}

/// Returns the highest bus bandwidth of an exchange.
fn exchange_value(exchange: Exchange, processes: &[ProcessTimes]) -> Option<LimitValue> {
    let exchange = ExchangeFigures::of(exchange, processes);
    let best = exchange.iter().max_by(|a, b| a.bus_bytes_per_s.total_cmp(&b.bus_bytes_per_s))?;
    let (value, bytes, reasons) = (best.bus_bytes_per_s, Some(best.bytes), best.reasons.clone());
    Some(LimitValue { value, bytes, exchange, reasons, ..LimitValue::default() })
}

impl LimitTimes {
    /// Returns the limit; `None` if nothing was measured.
    pub fn value(&self, sheet: &DataSheet) -> Option<LimitValue> {
        match self {
            LimitTimes::Operator(sizes) => {
                let figures = sizes.iter().map(|one| (one.size, OperatorFigures::of(&one.times, one.flops, sheet)));
                let rate = |figures: &OperatorFigures| figures.flops_per_s.unwrap_or(figures.bytes_per_s);
                let (size, best) = figures.max_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)))?;
                let (value, reasons) = (rate(&best), best.reasons.clone());
                Some(LimitValue { value, size: Some(size), figures: Some(best), reasons, ..LimitValue::default() })
            }
            LimitTimes::Transfers { bytes, times_s, .. } => {
                let mut times: Vec<f64> = times_s.iter().map(|time| time.0).collect();
                times.sort_unstable_by(f64::total_cmp);
                let value = bytes.0 as f64 / times.get(times.len() / 2)?;
                Some(LimitValue { value, ..LimitValue::default() })
            }
            LimitTimes::Capacity { bytes, .. } => Some(LimitValue { value: bytes.0 as f64, ..LimitValue::default() }),
            LimitTimes::AllReduce(processes) => exchange_value(Exchange::AllReduce, processes),
            LimitTimes::Broadcast(processes) => exchange_value(Exchange::Broadcast, processes),
        }
    }

    /// Returns what processes measured that exchange tensors.
    pub(crate) fn of_exchange(exchange: Exchange, processes: Vec<ProcessTimes>) -> Self {
        match exchange {
            Exchange::AllReduce => LimitTimes::AllReduce(processes),
            Exchange::Broadcast => LimitTimes::Broadcast(processes),
        }
    }

    /// Returns what several processes measured as one; `None` if they are none.
    pub fn merge(times: Vec<LimitTimes>) -> Option<LimitTimes> {
        times.into_iter().reduce(|all, own| match (all, own) {
            (LimitTimes::AllReduce(all), LimitTimes::AllReduce(own)) => LimitTimes::AllReduce([all, own].concat()),
            (LimitTimes::Broadcast(all), LimitTimes::Broadcast(own)) => LimitTimes::Broadcast([all, own].concat()),
            (all, _) => all,
        })
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        match self {
            LimitTimes::AllReduce(processes) | LimitTimes::Broadcast(processes) => processes.len(),
            _ => 1,
        }
    }

    /// Returns the name of the device in its driver.
    pub fn device_name(&self) -> Option<&str> {
        match self {
            LimitTimes::Operator(sizes) => sizes.first()?.times.device_name.as_deref(),
            LimitTimes::Transfers { device_name, .. } | LimitTimes::Capacity { device_name, .. } => {
                device_name.as_deref()
            }
            LimitTimes::AllReduce(all) | LimitTimes::Broadcast(all) => all.first()?.device_name.as_deref(),
        }
    }

    /// Returns the device, as the engine names it.
    pub fn device(&self) -> &str {
        match self {
            LimitTimes::Operator(sizes) => sizes.first().map_or("", |one| one.times.device.as_str()),
            LimitTimes::Transfers { device, .. } | LimitTimes::Capacity { device, .. } => device,
            LimitTimes::AllReduce(all) | LimitTimes::Broadcast(all) => {
                all.first().map_or("", |one| one.device.as_str())
            }
        }
    }
}
