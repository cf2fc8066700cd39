//! Encoded terminal modes (RFC 4254, section 8). Modes that Linux does not support are ignored.

use russh::Pty;
use rustix::termios::{ControlModes, InputModes, LocalModes, OutputModes, SpecialCodeIndex, Termios};

pub fn apply(termios: &mut Termios, modes: &[(Pty, u32)]) {
    for (mode, value) in modes {
        let on = *value != 0;
        if let Some(index) = special_code(*mode) {
            // 255 disables the character; Linux uses 0.
            termios.special_codes[index] = u8::try_from(*value).ok().filter(|code| *code != 255).unwrap_or(0);
        } else if let Some(flag) = input_flag(*mode) {
            termios.input_modes.set(flag, on);
        } else if let Some(flag) = local_flag(*mode) {
            termios.local_modes.set(flag, on);
        } else if let Some(flag) = output_flag(*mode) {
            termios.output_modes.set(flag, on);
        } else if let Some(flag) = control_flag(*mode) {
            termios.control_modes.set(flag, on);
        } else if matches!(mode, Pty::CS7 | Pty::CS8) && on {
            termios.control_modes.remove(ControlModes::CSIZE);
            termios.control_modes.insert(if *mode == Pty::CS7 { ControlModes::CS7 } else { ControlModes::CS8 });
        }
    }
}

fn special_code(mode: Pty) -> Option<SpecialCodeIndex> {
    Some(match mode {
        Pty::VINTR => SpecialCodeIndex::VINTR,
        Pty::VQUIT => SpecialCodeIndex::VQUIT,
        Pty::VERASE => SpecialCodeIndex::VERASE,
        Pty::VKILL => SpecialCodeIndex::VKILL,
        Pty::VEOF => SpecialCodeIndex::VEOF,
        Pty::VEOL => SpecialCodeIndex::VEOL,
        Pty::VEOL2 => SpecialCodeIndex::VEOL2,
        Pty::VSTART => SpecialCodeIndex::VSTART,
        Pty::VSTOP => SpecialCodeIndex::VSTOP,
        Pty::VSUSP => SpecialCodeIndex::VSUSP,
        Pty::VREPRINT => SpecialCodeIndex::VREPRINT,
        Pty::VWERASE => SpecialCodeIndex::VWERASE,
        Pty::VLNEXT => SpecialCodeIndex::VLNEXT,
        Pty::VSWTCH => SpecialCodeIndex::VSWTC,
        Pty::VDISCARD => SpecialCodeIndex::VDISCARD,
        _ => return None,
    })
}

fn input_flag(mode: Pty) -> Option<InputModes> {
    Some(match mode {
        Pty::IGNPAR => InputModes::IGNPAR,
        Pty::PARMRK => InputModes::PARMRK,
        Pty::INPCK => InputModes::INPCK,
        Pty::ISTRIP => InputModes::ISTRIP,
        Pty::INLCR => InputModes::INLCR,
        Pty::IGNCR => InputModes::IGNCR,
        Pty::ICRNL => InputModes::ICRNL,
        Pty::IUCLC => InputModes::IUCLC,
        Pty::IXON => InputModes::IXON,
        Pty::IXANY => InputModes::IXANY,
        Pty::IXOFF => InputModes::IXOFF,
        Pty::IMAXBEL => InputModes::IMAXBEL,
        Pty::IUTF8 => InputModes::IUTF8,
        _ => return None,
    })
}

fn local_flag(mode: Pty) -> Option<LocalModes> {
    Some(match mode {
        Pty::ISIG => LocalModes::ISIG,
        Pty::ICANON => LocalModes::ICANON,
        Pty::XCASE => LocalModes::XCASE,
        Pty::ECHO => LocalModes::ECHO,
        Pty::ECHOE => LocalModes::ECHOE,
        Pty::ECHOK => LocalModes::ECHOK,
        Pty::ECHONL => LocalModes::ECHONL,
        Pty::NOFLSH => LocalModes::NOFLSH,
        Pty::TOSTOP => LocalModes::TOSTOP,
        Pty::IEXTEN => LocalModes::IEXTEN,
        Pty::ECHOCTL => LocalModes::ECHOCTL,
        Pty::ECHOKE => LocalModes::ECHOKE,
        Pty::PENDIN => LocalModes::PENDIN,
        _ => return None,
    })
}

fn output_flag(mode: Pty) -> Option<OutputModes> {
    Some(match mode {
        Pty::OPOST => OutputModes::OPOST,
        Pty::OLCUC => OutputModes::OLCUC,
        Pty::ONLCR => OutputModes::ONLCR,
        Pty::OCRNL => OutputModes::OCRNL,
        Pty::ONOCR => OutputModes::ONOCR,
        Pty::ONLRET => OutputModes::ONLRET,
        _ => return None,
    })
}

fn control_flag(mode: Pty) -> Option<ControlModes> {
    Some(match mode {
        Pty::PARENB => ControlModes::PARENB,
        Pty::PARODD => ControlModes::PARODD,
        _ => return None,
    })
}
