# Completes the commands of posfuse; Hydra completes the overrides of posfuse train.
_posfuse() {
    local word="${COMP_WORDS[COMP_CWORD]}" choices=""
    if [ "$COMP_CWORD" = 1 ]; then
        choices="COMMANDS"
        compopt +o nospace 2> /dev/null
    elif [ "$COMP_CWORD" = 2 ] && [ "${COMP_WORDS[1]}" = study ]; then
        choices="plan freeze run status"
        compopt +o nospace 2> /dev/null
    elif [ "${COMP_WORDS[1]}" = train ]; then
        choices=$(COMP_LINE="posfuse ${COMP_LINE#*train}" "${COMP_WORDS[0]}" train -sc query=bash \
            2> /dev/null)
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _posfuse posfuse
