//! What an optimizer remembers, divided among the processes that train together (ZeRO stage 1: Rajbhandari et al., "ZeRO: Memory
//! Optimizations Toward Training Trillion Parameter Models", 2020). Each process updates its own parameters, and sends them to the others.

use indexmap::IndexMap;

use super::list_operators::broadcast_node;
use super::optimizer::OptimizerKind;
use super::state_exchange::StateExchange;
use super::step::{State, StateKind};
use crate::Graph;
use crate::lower::Rewriting;

/// Which process remembers what.
pub(super) struct Shard {
    /// This process.
    rank: u32,
    /// The process that has a state; `None` if all have it. In the order of the states.
    owners: Vec<Option<u32>>,
}

impl Shard {
    /// Returns which process has which state, from the owners of the parameters.
    pub fn of(rank: u32, owners: &IndexMap<String, u32>, states: &[State], optimizer: OptimizerKind) -> Self {
        let owner = |state: &State| {
            let (parameter, kind) = state.name.rsplit_once(':').filter(|_| state.kind == StateKind::Memory)?;
            optimizer.memory().contains(&kind).then(|| owners[parameter])
        };
        Shard { rank, owners: states.iter().map(owner).collect() }
    }

    /// Returns the indices of the states that this process has.
    pub fn kept(&self) -> Vec<usize> {
        let is_here =
            |(index, owner): (usize, &Option<u32>)| owner.is_none_or(|owner| owner == self.rank).then_some(index);
        self.owners.iter().enumerate().filter_map(is_here).collect()
    }

    /// Returns how all processes get the states of each of them in turn, so that a device never has all of them.
    pub fn exchanges(&self, states: &[State]) -> Vec<StateExchange> {
        let mut owners: Vec<u32> = self.owners.iter().copied().flatten().collect();
        owners.sort_unstable();
        owners.dedup();
        owners.into_iter().map(|owner| self.exchange_of(owner, states)).collect()
    }

    fn exchange_of(&self, owner: u32, states: &[State]) -> StateExchange {
        let outputs: Vec<usize> = (0..states.len()).filter(|index| self.owners[*index] == Some(owner)).collect();
        // The parameter of a state has its shape.
        let parameter = |index: usize| {
            let name = states[index].name.rsplit_once(':').map_or("", |(parameter, _)| parameter);
            states.iter().position(|state| state.name == name).expect("what an optimizer remembers is of a parameter")
        };
        let is_own = owner == self.rank;
        let inputs = outputs.iter().map(|index| if is_own { *index } else { parameter(*index) }).collect();
        StateExchange::new(states, inputs, outputs, |own, common| vec![broadcast_node(owner, own, common)])
    }
}

/// Returns the process that remembers what belongs to each parameter: of all parameters from the largest to the smallest, each is the
/// part of the process that has least.
pub(super) fn owners(model: &Graph, parameters: &[&str], processes: u32) -> IndexMap<String, u32> {
    let size = |name: &&str| {
        let elements = model.weights[*name].spec.fixed_shape().unwrap_or_default().iter().product();
        ((*name).to_owned(), elements)
    };
    divide(parameters.iter().map(size).collect(), processes)
}

fn divide(mut sizes: Vec<(String, usize)>, processes: u32) -> IndexMap<String, u32> {
    sizes.sort_by(|(name, size), (other, of_other)| of_other.cmp(size).then_with(|| name.cmp(other)));
    let mut loads = vec![0usize; processes.max(1) as usize];
    let mut owners = IndexMap::new();
    for (name, size) in sizes {
        let least = (0..loads.len()).min_by_key(|rank| loads[*rank]).expect("there is a process");
        loads[least] += size;
        owners.insert(name, least as u32);
    }
    owners
}

/// Lets each process send the parameters that it has updated. `own` are the states of its parameters, `parameters` are all in their
/// order, with their processes in `owners`. Returns the states of all parameters, with the memory of its own.
pub(super) fn exchange(
    rewriting: &mut Rewriting,
    graph: &Graph,
    owners: &IndexMap<String, u32>,
    parameters: &[String],
    own: &[State],
) -> Vec<State> {
    let next = |name: &str| {
        let state = own.iter().find(|state| state.name == name);
        state.map_or_else(|| name.to_owned(), |state| state.next.clone())
    };
    let mut lists: IndexMap<u32, Vec<&str>> = IndexMap::new();
    parameters.iter().for_each(|name| lists.entry(owners[name]).or_default().push(name));
    lists.sort_unstable_keys();
    for (owner, names) in lists {
        let inputs = names.iter().map(|name| next(name)).collect();
        let outputs = names.iter().map(|name| shared(name)).collect();
        rewriting.keep(broadcast_node(owner, inputs, outputs));
    }
    let states = parameters.iter().flat_map(|name| {
        let initial = graph.weights[name].clone();
        let parameter = State { name: name.clone(), kind: StateKind::Parameter, next: shared(name), initial };
        let is_memory = |state: &&State| {
            state.kind == StateKind::Memory && state.name.rsplit_once(':').is_some_and(|(of, _)| of == name)
        };
        let memory = own.iter().filter(is_memory).cloned().collect::<Vec<State>>();
        [parameter].into_iter().chain(memory)
    });
    states.collect()
}

fn shared(parameter: &str) -> String {
    format!("shared.{parameter}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Attribute, DType, GraphBuilder, Moments, Optimizer, REDUCE, ROOT, TensorSpec, TrainingOptions, TrainingStep,
        layers, training_step,
    };

    #[test]
    fn each_parameter_belongs_to_the_process_that_has_least() {
        let sizes = [("a", 10), ("b", 70), ("c", 40), ("d", 30), ("e", 10)];
        let owners = divide(sizes.map(|(name, size)| (name.to_owned(), size)).to_vec(), 2);
        let of = |name: &str| owners[name];
        assert_eq!(["a", "b", "c", "d", "e"].map(of), [0, 0, 1, 1, 1]);
    }

    /// Returns the step of a process that trains a network of four parameters with Adam.
    fn step(processes: u32, shard: Option<u32>) -> TrainingStep {
        let mut graph = GraphBuilder::new("network");
        let g = &mut graph;
        let x = g.input("x", TensorSpec::new([2, 8], DType::F32)).unwrap();
        let y = layers::linear(g, "large", &x, layers::Linear::new(8, 16)).unwrap();
        let y = layers::linear(g, "small", &y, layers::Linear::new(16, 4)).unwrap();
        let loss = layers::mean(g, "mean", &y, &[0, 1], false).unwrap();
        g.output("loss", &loss).unwrap();
        let kind = OptimizerKind::Adam(Moments { beta1: 0.9, beta2: 0.999, eps: 1e-8 });
        let optimizer = Optimizer { kind, weight_decay: 0.0, norm_weight_decay: None, bias_weight_decay: None };
        let options = TrainingOptions { processes, shard, ..TrainingOptions::new(optimizer) };
        training_step(&graph.finish().unwrap(), "loss", &options).unwrap()
    }

    #[test]
    fn a_process_remembers_its_part_and_gets_all_parameters() {
        let (whole, parts) = (step(2, None), [0, 1].map(|rank| step(2, Some(rank))));
        assert_eq!((whole.states.len(), whole.kept.len(), whole.exchanges.len()), (12, 12, 0));
        let mut remembered = Vec::new();
        for part in &parts {
            let names = |states: &[State]| states.iter().map(|state| state.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&part.states), names(&whole.states), "another rank computes with all states");
            let kept: Vec<&State> = part.kept.iter().map(|index| &part.states[*index]).collect();
            for graph in [&part.graph, &part.undifferentiated] {
                let inputs = graph.inputs.iter().rev().take(kept.len()).rev().map(|input| &input.name);
                assert!(inputs.eq(kept.iter().map(|state| &state.name)), "{:?}", graph.inputs);
                assert_eq!(graph.outputs.len(), 2 + kept.len());
            }
            assert_eq!(kept.iter().filter(|state| state.kind == StateKind::Parameter).count(), 4);
            let roots = part.graph.nodes.iter().filter(|node| node.op == REDUCE).map(|node| &node.attributes[ROOT]);
            assert!(roots.eq([1, 0].map(Attribute::Int).iter()), "the gradients of `small` are known first");
            let own: Vec<String> =
                kept.iter().filter(|state| state.kind == StateKind::Memory).map(|s| s.name.clone()).collect();
            assert_eq!(part.exchanges.iter().map(|exchange| exchange.outputs.len()).sum::<usize>(), 8);
            for exchange in &part.exchanges {
                let specs = |indices: &[usize]| {
                    indices.iter().map(|i| part.states[*i].initial.spec.clone()).collect::<Vec<_>>()
                };
                assert_eq!(specs(&exchange.inputs), specs(&exchange.outputs));
                assert!(exchange.inputs.iter().all(|index| part.kept.contains(index)));
            }
            remembered.extend(own);
        }
        remembered.sort();
        let mut all: Vec<String> =
            whole.states.iter().filter(|s| s.kind == StateKind::Memory).map(|s| s.name.clone()).collect();
        all.sort();
        assert_eq!(remembered, all);
    }

    #[test]
    fn a_process_without_parameters_updates_none() {
        let step = step(5, Some(4));
        assert!(step.kept.iter().all(|index| step.states[*index].kind == StateKind::Parameter));
        for node in step.graph.nodes.iter().chain(&step.undifferentiated.nodes) {
            assert!(!node.inputs.is_empty() || node.op == "Constant", "{node:?}");
        }
    }
}
