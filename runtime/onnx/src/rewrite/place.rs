//! The places that are replaced, the nodes of each that are removed, and which of two that overlap stays.

use std::collections::{HashMap, HashSet};

use super::find::{Found, NearMiss};
use super::index::{GraphIndex, Value};
use super::replace::Replacement;

/// A place with what replaces it.
pub(super) struct Place {
    pub found: Found,
    pub replacement: Replacement,
    /// The nodes that are removed.
    pub removed: HashSet<usize>,
}

impl Place {
    /// Returns a place whose replacement reads some values of the graph.
    pub fn new(found: Found, replacement: Replacement, read: &HashSet<Value>, index: &GraphIndex<'_>) -> Self {
        let removed = removable(&found, read, index);
        Place { found, replacement, removed }
    }
}

/// Returns the nodes of a place that are removed: those that neither the replacement nor anything outside of it needs.
fn removable(place: &Found, read: &HashSet<Value>, index: &GraphIndex<'_>) -> HashSet<usize> {
    let inner: HashSet<usize> = place.nodes.iter().copied().collect();
    let mut numbers = place.nodes.clone();
    numbers.sort_unstable();
    let mut removable = inner.clone();
    // Readers come before what they read.
    for number in numbers.into_iter().rev().filter(|number| *number != place.root) {
        let outputs = index.node(number).outputs.iter().filter_map(|output| index.value(output));
        let is_needed = outputs.into_iter().any(|value| {
            let mut readers = index.readers(value).iter();
            index.is_output(value) || read.contains(&value) || readers.any(|reader| !removable.contains(reader))
        });
        if is_needed {
            removable.remove(&number);
        }
    }
    removable
}

/// Returns the places that share no nodes with one that ends later, except nodes that stay.
pub(super) fn without_overlaps(
    found: Vec<Place>,
    index: &GraphIndex<'_>,
    near_misses: &mut Vec<NearMiss>,
) -> Vec<Place> {
    let mut taken: HashMap<usize, usize> = HashMap::new();
    let mut places = Vec::new();
    for place in found.into_iter().rev() {
        let Place { found, removed, .. } = &place;
        let others: Vec<usize> = removed.iter().filter_map(|node| taken.get(node).copied()).collect();
        match others.first() {
            None => {
                taken.extend(removed.iter().map(|node| (*node, found.root)));
                places.push(place);
            }
            // A part of a larger place is not a place of its own.
            Some(_) if others.len() == removed.len() => {}
            Some(other) => near_misses.push(NearMiss {
                node: index.node(found.root).name.clone(),
                nodes: found.nodes.len(),
                names: Vec::new(),
                reason: format!("it shares nodes with the place that ends at node `{}`", index.node(*other).name),
            }),
        }
    }
    places.reverse();
    places
}
