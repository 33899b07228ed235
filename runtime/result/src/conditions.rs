//! What disturbed the device of a phase while it ran. A device at its own usual power limit is not throttled, because a
//! full load runs there; a lowered power limit, heat and a power brake throttle it.

use serde::{Deserialize, Serialize};

/// The state of a device during a phase, as the vendor's monitor reported it to the conductor about once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct DeviceConditions {
    /// Number of readings.
    pub readings: u64,
    /// Processes that this program did not start and that used the device: their ids and the names of their programs.
    /// `None` when the monitor does not tell, or numbers processes differently, as outside a container.
    pub other_processes: Option<Vec<String>>,
    /// Why the device was slowed down, such as by heat or a lowered limit of power. `None` when the monitor does not tell.
    pub throttling: Option<Vec<String>>,
    /// Share of the readings in which the device drew all the power that it may, which is usual under full load.
    pub at_power_limit_share: Option<f64>,
    /// Lowest and highest clock of the compute units that was read, in MHz.
    pub clock_mhz: Option<[u32; 2]>,
    /// Highest clock of the compute units that the device has, in MHz.
    pub clock_max_mhz: Option<u32>,
    /// Limit of the power that the device may draw, in watts.
    pub power_limit_w: Option<f64>,
    /// Mean of the readings of power, in watts.
    pub power_w_mean: Option<f64>,
    /// Largest share of the time between two readings in which the device computed, from 0 to 1.
    pub busy_share_max: Option<f64>,
    /// Highest temperature that was read, in degrees Celsius.
    pub temperature_c_max: Option<u32>,
}
