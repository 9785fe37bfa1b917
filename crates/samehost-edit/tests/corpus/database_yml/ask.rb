# What ActiveRecord makes of a database.yml, and the clients of the databases of that: one fact a line.
require 'erb'
require 'yaml'
require 'active_record'
require 'active_record/database_configurations'

def tcp(host, port) = "tcp:#{host.include?(':') ? "[#{host}]" : host}:#{port}"

def endpoint(config)
  host, port, socket = config.values_at(:host, :port, :socket)
  case config[:adapter]
  when 'postgresql', 'postgis'
    return 'default' unless host
    host.start_with?('/') ? "unix:#{host}/.s.PGSQL.#{port || 5432}" : tcp(host, port || 5432)
  when 'mysql2'
    # libmysqlclient takes the socket where the host is localhost or not there.
    [nil, 'localhost'].include?(host) ? "unix:#{socket || 'default'}" : tcp(host, port || 3306)
  when 'trilogy'
    # ActiveRecord takes the host away where there is a socket.
    socket ? "unix:#{socket}" : tcp(host || 'localhost', port || 3306)
  end
end

document = YAML.load(ERB.new(File.read(ARGV[0])).result, aliases: true)
document.each_key do |environment|
  ActiveRecord::DatabaseConfigurations.new(document).configs_for(env_name: environment, include_replicas: true).each do |config|
    several = document[environment].is_a?(Hash) && document[environment].values.all?(Hash)
    name = several ? "#{environment}.#{config.name}" : environment
    hash = config.configuration_hash
    place = endpoint(hash)
    puts "#{name} endpoint=#{place}" if place
    hash.each { |key, value| puts "#{name} #{key}=#{value.inspect}" unless %i[host port socket].include?(key) && place }
  end
end
