//! A program that is written from top to bottom, with jumps to labels. Jumps that are counted by hand are the likeliest
//! mistake in a table of instructions, and the kernel reports it, if at all, as something else.

use crate::instruction::{Instruction, Operand, Register, Test, skip, skip_if, skip_unless_positive};

/// A place in a program, to which it jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program as far as it is written.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    instructions: Vec<Instruction>,
    /// Where each label is.
    places: Vec<Option<usize>>,
    /// Which instruction jumps to which label.
    jumps: Vec<(usize, Label)>,
}

impl Assembly {
    /// A label that has no place yet.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub(crate) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    pub(crate) fn put(&mut self, instructions: impl IntoIterator<Item = Instruction>) {
        self.instructions.extend(instructions);
    }

    pub(crate) fn go(&mut self, to: Label) {
        self.jump(skip(0), to);
    }

    pub(crate) fn go_if(&mut self, of: Register, test: Test, than: impl Into<Operand>, to: Label) {
        self.jump(skip_if(of, test, than, 0), to);
    }

    /// Jumps if the lower 32 bits, with their sign, are not above zero.
    pub(crate) fn go_unless_positive(&mut self, of: Register, to: Label) {
        self.jump(skip_unless_positive(of, 0), to);
    }

    fn jump(&mut self, instruction: Instruction, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.instructions.push(instruction);
    }

    /// The program with its jumps. A label without a place leaves a loop, which the kernel refuses.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].unwrap_or(at);
            let by = place as i64 - at as i64 - 1;
            self.instructions[at] = self.instructions[at].over(by as i16);
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::Register::{R0, R1};
    use crate::instruction::{end, set};

    #[test]
    fn jumps_lead_to_their_labels() {
        let mut program = Assembly::default();
        let (again, done) = (program.label(), program.label());
        program.place(again);
        program.put([set(R0, 0)]);
        program.go_if(R1, Test::Is, 0, done);
        program.go(again);
        program.place(done);
        program.put([end()]);
        assert_eq!(program.finish(), [set(R0, 0), skip_if(R1, Test::Is, 0, 1), skip(-3), end()]);
    }
}
