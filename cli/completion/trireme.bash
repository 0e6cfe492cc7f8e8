# Completion of `trireme` for bash; in zsh behind compinit and bashcompinit.
#
# Commands and options come from the program itself, so that they are those of this version.

_trireme_commands() { trireme help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p'; }
_trireme_options() { trireme help "$1" --markdown 2>/dev/null | sed -n 's/^| \([^|]*\)|.*/\1/p' | grep -o '`-[^`]*`' | tr -d '`'; }

_trireme() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
  compopt -o default 2>/dev/null  # file names where nothing below fits
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "$(_trireme_commands)" -- "$word"))
  elif [ "$command" = help ]; then
    COMPREPLY=($(compgen -W "$(_trireme_commands) environment" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(_trireme_options "$command")" -- "$word"))
  fi
}
complete -F _trireme trireme
