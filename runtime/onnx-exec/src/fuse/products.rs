//! Merges products of one value and several constant matrices into one product.

use super::super::execution_plan::{ExecutionPlan, Slot, Step, stays_on_host};
use super::super::op::Op;
use flagperf_onnx::{Dim, Tensor};
use indexmap::IndexMap;

/// A product with a transposed weight, `rows,columns`.
struct Product {
    matmul: usize,
    transpose: usize,
    weight: Slot,
}

impl ExecutionPlan {
    /// Merges the products of each value with transposed weights, such as those of queries, keys and values: a device that multiplies
    /// few rows needs less time for one large matrix than for several small ones.
    pub fn merge_products(&mut self) {
        let uses = self.use_counts();
        let producers: IndexMap<Slot, usize> = self
            .steps
            .iter()
            .enumerate()
            .flat_map(|(at, step)| step.outputs.iter().map(move |slot| (*slot, at)))
            .collect();
        let mut groups: IndexMap<Slot, Vec<Product>> = IndexMap::new();
        for (at, step) in self.steps.iter().enumerate() {
            let (Op::MatMul, &[Some(x), Some(matrix)]) = (&step.op, &step.inputs[..]) else { continue };
            let Some(transpose) = producers.get(&matrix).copied().filter(|_| uses[matrix] == 1) else { continue };
            let weight = self.transposed_weight(transpose).filter(|weight| uses[*weight] == 1);
            // A product with one row would lose that dimension.
            let is_matrix = self.specs[x].as_ref().is_some_and(|spec| spec.dims.len() >= 2);
            groups.entry(x).or_default().extend(weight.filter(|_| is_matrix).map(|weight| Product {
                matmul: at,
                transpose,
                weight,
            }));
        }
        let mut replaced: IndexMap<usize, Vec<Step>> = IndexMap::new();
        for (x, products) in groups.into_iter().filter(|(_, products)| products.len() > 1) {
            let merged = self.merged_product(x, &products);
            for product in &products {
                replaced.insert(product.transpose, Vec::new());
                replaced.insert(product.matmul, Vec::new());
            }
            replaced.insert(products[0].matmul, merged);
        }
        let steps = std::mem::take(&mut self.steps);
        let replace = |(at, step)| replaced.swap_remove(&at).unwrap_or_else(|| vec![step]);
        self.steps = steps.into_iter().enumerate().flat_map(replace).collect();
    }

    /// Returns the weight that a step transposes, if it is a constant matrix.
    fn transposed_weight(&self, at: usize) -> Option<Slot> {
        let (Op::Transpose { order: Some(order) }, &[Some(weight)]) = (&self.steps[at].op, &self.steps[at].inputs[..])
        else {
            return None;
        };
        let constant = self.constants.get(&weight)?;
        (order[..] == [1, 0] && constant.shape().len() == 2 && !stays_on_host(constant)).then_some(weight)
    }

    /// Returns the steps that compute all products at once, and adds their constants.
    fn merged_product(&mut self, x: Slot, products: &[Product]) -> Vec<Step> {
        let weights: Vec<Tensor> =
            products.iter().filter_map(|product| self.constants.remove(&product.weight)).collect();
        let rows: Vec<i64> = weights.iter().map(|weight| weight.shape()[0] as i64).collect();
        let all: usize = weights.iter().map(|weight| weight.shape()[0]).sum();
        let (columns, dtype) = (weights[0].shape()[1], weights[0].dtype());
        let mut bytes = Vec::with_capacity(all * columns * dtype.size());
        weights.iter().for_each(|weight| bytes.extend_from_slice(weight.bytes()));
        drop(weights);
        let merged =
            Tensor::from_bytes([all, columns], dtype, &bytes).expect("the weights have as many columns as `x`");
        let weight = self.add_constant(merged);
        let sizes =
            self.add_constant(Tensor::from_vec([rows.len()], rows).expect("the length of a vector is its shape"));
        let matrix = self.add_slot(None);
        let first = &self.steps[products[0].matmul];
        let name = format!("{} and {} more", first.name, products.len() - 1);
        let spec = self.specs[first.outputs[0]].clone().map(|mut spec| {
            spec.dims.pop();
            spec.dims.push(Dim::Fixed(all));
            spec
        });
        let product = self.add_slot(spec);
        let outputs = products.iter().map(|product| self.steps[product.matmul].outputs[0]).collect();
        let step = |op_name: &str, op, inputs: &[Slot], outputs| Step {
            name: name.clone(),
            op_name: op_name.to_owned(),
            op,
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs,
            bodies: Vec::new(),
        };
        vec![
            step("Transpose", Op::Transpose { order: Some(vec![1, 0]) }, &[weight], vec![matrix]),
            step("MatMul", Op::MatMul, &[x, matrix], vec![product]),
            step("Split", Op::Split { axis: -1, parts: products.len() }, &[product, sizes], outputs),
        ]
    }
}
