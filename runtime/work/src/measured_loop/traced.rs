//! Batches that run for a trace, after the measurement and as part of no figure.

use super::super::trace::Spans;
use super::MeasuredLoop;
use flagperf_core::event::Failure;
use flagperf_core::measure::Nanos;
use flagperf_core::metric::Accumulator;

/// Number of steps before the traced ones.
const WARM_UP_STEPS: usize = 2;
/// Largest number of traced batches.
const TRACED_BATCHES: usize = 8;

impl MeasuredLoop<'_> {
    /// Runs some batches, and adds what the loop and the script do. Returns when the first traced batch was requested.
    ///
    /// # Errors
    /// As [`MeasuredLoop::run`].
    pub fn run_traced(mut self, spans: &Spans) -> Result<Nanos, Failure> {
        let clock = self.progress.clock;
        let first = self.batches.start_with_first()?;
        for _ in 0..WARM_UP_STEPS {
            self.model.run_unmeasured(&first, clock)?;
        }
        self.batches.recycle(first)?;
        self.model.forget_unmeasured();
        let mut order = self.batches.order_of_pass(0);
        order.truncate(TRACED_BATCHES);
        let from = clock.now();
        let mut mark = from;
        self.batches.start_in_order(order)?;
        while let Some(batch) = self.batches.next()? {
            let (times, end) = self.run_step((0, 1), batch, mark, &mut Accumulator::default())?;
            spans.add("traced batches", "batch", mark, times.total());
            for (name, time) in times.parts() {
                spans.add("parts of a traced batch", name, mark, time);
                mark = Nanos(mark.0 + (time.0 * 1e9) as u64);
            }
            mark = end;
        }
        for span in self.model.take_spans() {
            for (begin, time) in span.begins.iter().zip(&span.times) {
                spans.add("parts of the forward function", &span.name, *begin, *time);
            }
        }
        self.close_sessions();
        Ok(from)
    }
}
