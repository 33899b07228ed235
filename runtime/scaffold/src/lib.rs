//! New cases, vendors and engines from templates: complete folders that run at once on the engine `null`.
//!
//! Runs nothing and knows no particular vendor: it writes files and says which commands to type next.

mod case;
mod engine;
mod entry;
mod error;
mod files;
mod lock;
mod model_case;
mod name;
mod operator;
mod vendor;

use std::path::Path;

use flagperf_config::Config;
use flagperf_plan::Catalogue;

pub use case::{missing_overlay, new_case};
pub use engine::{EngineKind, new_engine};
pub use entry::add_entry;
pub use error::ScaffoldError;
pub use files::Scaffold;
pub use lock::CheckoutLock;
pub use model_case::{case_name, new_model_case, runs_model};
pub use name::{check as check_name, check_case as check_case_name};
pub use operator::new_operator;
pub use vendor::new_vendor;

/// The engine that computes nothing.
const NULL: &str = "null";

/// The checkout in which something new is created.
pub struct Checkout<'c> {
    /// Its folder.
    pub root: &'c Path,
    /// Its configuration, with the cases that host.yaml lists.
    pub config: &'c Config,
    /// The vendors and cases on disk, and the engines of this program.
    pub catalogue: &'c Catalogue,
}
