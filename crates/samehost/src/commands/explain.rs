//! `samehost explain [CODE]`: what a code of a scan means, and what of it is on this machine.

use samehost_scan::{EXPLANATIONS, explanation};
use samehost_system::interrupt;

use super::scan::look;
use crate::exit::Ending;
use crate::output;
use crate::wrong_use::WrongUse;

pub fn explain(code: Option<&str>) -> anyhow::Result<Ending> {
    let Some(code) = code else {
        output::show(|terminal, out| terminal.render_explanations(&EXPLANATIONS, out))?;
        return Ok(Ending::Done);
    };
    let Some(one) = explanation(code) else {
        let known: Vec<&str> = EXPLANATIONS.iter().map(|one| one.code).collect();
        return Err(WrongUse(format!("no code is called `{code}`; there are {}", known.join(", "))).into());
    };
    let scan = look(None, false, true, &interrupt::flag())?;
    output::show(|terminal, out| terminal.render_explanation(one, &scan, out))?;
    Ok(Ending::Done)
}
