//! The figures of a case with several values of one setting, as a page that needs neither scripts nor the network.

use flagperf_comparison::Sweep;
use flagperf_page::sweep_html;

use super::compare_page::page_with_text;
use super::sweep_text::sweep_text;

/// Returns the page.
pub(super) fn sweep_page(sweep: &Sweep) -> String {
    page_with_text(&format!("{} by {}", sweep.case, sweep.key), &sweep_html(sweep), |columns| {
        sweep_text(sweep, columns)
    })
}
