//! Checks what another host says that its processes have measured, because nothing that it prints is trusted: its texts are shortened, and
//! what is not a measurement of these processes is refused.

use flagperf_core::process_group::ProcessGroup;

use super::exchange::{CALLS_MAX, CALLS_MIN, Exchange, ProcessTimes, SIZES, SeriesTimes};
use super::limit_times::LimitTimes;
use super::limits::Limit;

impl LimitTimes {
    /// Returns the times of the processes of a host, which begin with `first`; `shorten` makes its texts safe to show.
    ///
    /// # Errors
    /// When they are not those of this limit and of these processes.
    pub fn of_host(
        self,
        limit: &Limit,
        host: &str,
        first: &ProcessGroup,
        shorten: fn(&str) -> String,
    ) -> Result<LimitTimes, String> {
        let refused = |what: &str| Err(format!("it sent no measurement of `{}`: {what}", limit.name));
        let Some(exchange) = limit.exchange() else { return refused("it is not a limit of several devices") };
        let processes = match (self, exchange) {
            (LimitTimes::AllReduce(processes), Exchange::AllReduce)
            | (LimitTimes::Broadcast(processes), Exchange::Broadcast) => processes,
            _ => return refused("the times are those of another limit"),
        };
        let ranks = first.rank..first.rank + first.local_size;
        if !processes.iter().map(|process| process.rank).eq(ranks.clone()) {
            return refused(&format!(
                "the processes are not those with the ranks {} to {}",
                ranks.start,
                ranks.end - 1
            ));
        }
        if !processes.iter().all(has_possible_times) {
            return refused("the sizes or the times are not those of a measurement");
        }
        let of_host = |process: ProcessTimes| process.of_host(host, shorten);
        Ok(LimitTimes::of_exchange(exchange, processes.into_iter().map(of_host).collect()))
    }
}

/// Returns whether the sizes are the first ones, and each has a number of calls that is measured.
fn has_possible_times(process: &ProcessTimes) -> bool {
    let sizes = process.series.iter().map(|series| series.bytes.0);
    let is_possible = |series: &SeriesTimes| {
        let calls = (CALLS_MIN as usize..=CALLS_MAX as usize).contains(&series.calls_s.len());
        calls && series.calls_s.iter().all(|time| time.0 > 0.0)
    };
    let is_known = sizes.eq(SIZES.iter().take(process.series.len()).map(|bytes| *bytes as u64));
    !process.series.is_empty() && is_known && process.series.iter().all(is_possible)
}

impl ProcessTimes {
    fn of_host(mut self, host: &str, shorten: fn(&str) -> String) -> Self {
        let texts = [&mut self.engine, &mut self.version, &mut self.device].into_iter();
        let texts = texts.chain(&mut self.device_name).chain(&mut self.device_id);
        let comparisons =
            self.series.iter_mut().flat_map(|own| [&mut own.comparison, &mut own.comparison_of_new_inputs]);
        let texts = texts.chain(comparisons.filter_map(|comparison| comparison.wrong.as_mut()));
        texts.for_each(|text| *text = shorten(text));
        ProcessTimes { host: Some(host.to_owned()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use flagperf_core::units::{Bytes, Seconds};

    use super::super::check::Comparison;
    use super::*;

    fn process(rank: u32) -> ProcessTimes {
        let right = Comparison { error: 0.0, limit: 1e-5, compared: 1, elements: 1, wrong: Some("x\ny".to_owned()) };
        let series = SeriesTimes {
            bytes: Bytes(SIZES[0] as u64),
            calls_s: vec![Seconds(1.0); CALLS_MIN as usize],
            new_inputs_s: Seconds(1.0),
            deferred_s: Seconds(0.0),
            comparison: right.clone(),
            comparison_of_new_inputs: right,
        };
        ProcessTimes {
            rank,
            host: None,
            engine: "e".to_owned(),
            version: "1".to_owned(),
            device: "cuda\n:0".to_owned(),
            device_name: None,
            device_id: None,
            series: vec![series],
        }
    }

    fn of_host(times: LimitTimes) -> Result<LimitTimes, String> {
        let limit = Limit::find("interconnect-MPI_interserver").unwrap();
        let first = ProcessGroup { rank: 2, local_size: 2, ..ProcessGroup::default() };
        times.of_host(limit, "h2", &first, |text| text.replace('\n', " "))
    }

    #[test]
    fn the_times_of_a_host_have_its_name_and_texts_that_are_safe_to_show() {
        let LimitTimes::AllReduce(processes) = of_host(LimitTimes::AllReduce(vec![process(2), process(3)])).unwrap()
        else {
            panic!("another exchange");
        };
        let [_, second] = processes.as_slice() else { panic!("{processes:?}") };
        assert_eq!((second.host.as_deref(), second.device.as_str()), (Some("h2"), "cuda :0"));
        assert_eq!(second.series[0].comparison.wrong.as_deref(), Some("x y"));
    }

    #[test]
    fn what_a_host_did_not_measure_with_these_processes_is_refused() {
        let changed = |change: fn(&mut ProcessTimes)| {
            let mut own = process(3);
            change(&mut own);
            of_host(LimitTimes::AllReduce(vec![process(2), own]))
        };
        assert!(changed(|_| ()).is_ok());
        let changes: [fn(&mut ProcessTimes); 6] = [
            |own| own.rank = 1,
            |own| own.series.clear(),
            |own| own.series[0].bytes = Bytes(1),
            |own| own.series[0].calls_s.truncate(1),
            |own| own.series[0].calls_s[0] = Seconds(0.0),
            |own| own.series = vec![own.series[0].clone(); 2],
        ];
        for change in changes {
            let reason = changed(change).unwrap_err();
            assert!(reason.starts_with("it sent no measurement of `interconnect-MPI_interserver`: the "), "{reason}");
        }
        assert!(of_host(LimitTimes::AllReduce(vec![process(2)])).unwrap_err().contains("the ranks 2 to 3"));
        for other in [LimitTimes::Broadcast(vec![process(2), process(3)]), LimitTimes::Operator(Vec::new())] {
            assert!(of_host(other).unwrap_err().contains("those of another limit"));
        }
    }
}
