//! The number of files that this process may open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Lets this process open as many files as the system allows it: each connection is one, and a usual limit is 1024.
pub fn allow_open_files() {
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        warn!("the limit of open files stays as it is: {error}");
    }
}
